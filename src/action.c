/*
 * action.c
 *	  A registered kind of effect: how it is keyed, how an unknown one is
 *	  treated, who may use it.
 *
 * The registry is effect.action, protected by its row locks; a call reads the
 * latest row once and carries it along.  Nothing lives here between calls.  How
 * an action is keyed cannot change once it has effects: every key would rotate
 * and every effect could happen again.
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_set_action);

#define ACTION_MAX_APPROVALS 100

static const char *const action_policies[] = {"check", "resend", "drop"};

/* The settings, in the order of set_action's arguments and of the columns. */
typedef enum ActionSetting
{
	SET_KEY_FIELDS,
	SET_IDENTITY,
	SET_ON_UNKNOWN,
	SET_RESOLVER,
	SET_SETTLE,
	SET_TIMEOUT,
	SET_DEDUPES_FOR,
	SET_APPROVALS,
	SET_APPROVE_WITHIN,
	SET_KEEP_BODY,
	SET_KEEP_KEY,
	SET_USABLE_BY,
	SET_COUNT
} ActionSetting;

typedef struct ActionRow
{
	bool		exists;
	char	   *registered_by;
	Datum		value[SET_COUNT];
	bool		null[SET_COUNT];
} ActionRow;

#define ACTION_COLUMNS \
	"key_fields, identity, on_unknown, resolver, settle, timeout, far_side_dedupes_for," \
	" approvals_required, approve_within, keep_body_for, keep_key_for, usable_by"

#define ACTION_SELECT \
	"SELECT key_fields, identity::pg_catalog.text, on_unknown::pg_catalog.text, resolver, settle," \
	" timeout, far_side_dedupes_for, approvals_required, approve_within, keep_body_for," \
	" keep_key_for, usable_by, registered_by::pg_catalog.text FROM effect.action" \
	" WHERE action OPERATOR(pg_catalog.=) $1"

static SqlPlan action_select = {ACTION_SELECT, 1, {TEXTOID}};
static SqlPlan action_lock = {ACTION_SELECT " FOR UPDATE", 1, {TEXTOID}};

static SqlPlan action_insert = {
	"INSERT INTO effect.action (action, identity, on_unknown, approvals_required, registered_by,"
	" registered_at, changed_at) VALUES ($1, 'facts'::effect.identity,"
	" 'check'::effect.unknown_policy, 0, $2, $3, $3) ON CONFLICT DO NOTHING",
	3, {TEXTOID, NAMEOID, TIMESTAMPTZOID}
};

static SqlPlan action_update = {
	"UPDATE effect.action SET (" ACTION_COLUMNS ", changed_at) ="
	" ($2, $3::effect.identity, $4::effect.unknown_policy, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
	" WHERE action OPERATOR(pg_catalog.=) $1",
	14, {TEXTOID, TEXTARRAYOID, TEXTOID, TEXTOID, TEXTOID, INTERVALOID, INTERVALOID, INTERVALOID,
		INT4OID, INTERVALOID, INTERVALOID, INTERVALOID, NAMEARRAYOID, TIMESTAMPTZOID}
};

static SqlPlan action_has_effects = {
	"SELECT 1 FROM effect.ledger WHERE action OPERATOR(pg_catalog.=) $1 LIMIT 1",
	1, {TEXTOID}
};

/* The latest row of an action, in the caller's memory. */
static void
action_read_row(const char *action, bool lock, ActionRow *row)
{
	SqlScope	scope;
	SqlArgs		args = {0};

	memset(row, 0, sizeof(*row));
	sql_open(&scope);
	sql_arg_text(&args, action);
	row->exists = (lock ? sql_write(&action_lock, &args) : sql_read(&action_select, &args)) > 0;
	for (int i = 0; i < SET_COUNT; i++)
		row->null[i] = !row->exists || !sql_column_copy(&scope, i + 1, &row->value[i]);
	if (row->exists)
		row->registered_by = sql_column_text(&scope, SET_COUNT + 1);
	sql_close(&scope);
}

/* A setting as microseconds, months taken as 30 days; 0: not set. */
static int64
action_microseconds(const ActionRow *row, ActionSetting setting)
{
	Interval   *interval;

	if (row->null[setting])
		return 0;
	interval = DatumGetIntervalP(row->value[setting]);
	return interval->time + (interval->day + interval->month * INT64CONST(30)) * USECS_PER_DAY;
}

static int
action_policy(const ActionRow *row)
{
	char	   *label = TextDatumGetCString(row->value[SET_ON_UNKNOWN]);

	for (int i = 0; i < lengthof(action_policies); i++)
		if (strcmp(label, action_policies[i]) == 0)
			return i;
	elog(ERROR, "unexpected policy \"%s\"", label);
	pg_unreachable();
}

/* May the current role use this action?  42501 where usable_by says no. */
static void
action_check_usable(const char *action, const ActionRow *row)
{
	Datum	   *roles;
	int			n;

	if (row->null[SET_USABLE_BY])
		return;
	deconstruct_array(DatumGetArrayTypeP(row->value[SET_USABLE_BY]), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &roles, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		Oid			role = get_role_oid(NameStr(*DatumGetName(roles[i])), true);

		if (OidIsValid(role) && has_privs_of_role(GetUserId(), role))
			return;
	}
	if (superuser())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("role \"%s\" may not use action \"%s\"", GetUserNameFromId(GetUserId(), false), action),
			 errhint("Its owner sets who may: effect.set_action(..., usable_by => ...).")));
}

/*
 * action_get
 *		How this action is treated: as registered, or as one nobody registered.
 *		With "to_use", for someone who claims or submits: 42501 where the caller may not use it, LE003 where only registered
 *		actions are allowed (effect.require_registered_actions).
 */
void
action_get(const char *name, bool to_use, Action *action)
{
	ActionRow	row;

	memset(action, 0, sizeof(*action));
	action->name = name;
	action->settle = (int64) effect_default_settle * INT64CONST(1000);
	action->timeout = (int64) effect_default_timeout * INT64CONST(1000);
	action_read_row(name, false, &row);
	if (!row.exists && to_use && effect_require_registered_actions)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_NOT_FOUND),
				 errmsg("action \"%s\" is not registered", name),
				 errhint("Register it with effect.set_action(); effect.require_registered_actions is on.")));
	if (!row.exists)
		return;
	if (to_use)
		action_check_usable(name, &row);
	action->registered = true;
	action->registered_by = row.registered_by;
	action->key_fields = row.null[SET_KEY_FIELDS] ? NULL : DatumGetArrayTypeP(row.value[SET_KEY_FIELDS]);
	action->by_target = strcmp(TextDatumGetCString(row.value[SET_IDENTITY]), "target") == 0;
	action->on_unknown = (UnknownPolicy) action_policy(&row);
	action->resolver = row.null[SET_RESOLVER] ? NULL : TextDatumGetCString(row.value[SET_RESOLVER]);
	if (!row.null[SET_SETTLE])
		action->settle = action_microseconds(&row, SET_SETTLE);
	if (!row.null[SET_TIMEOUT])
		action->timeout = action_microseconds(&row, SET_TIMEOUT);
	action->dedupes_for = action_microseconds(&row, SET_DEDUPES_FOR);
	action->approve_within = action_microseconds(&row, SET_APPROVE_WITHIN);
	action->approvals = DatumGetInt32(row.value[SET_APPROVALS]);
}

/*
 * action_key
 *		The key of an effect, and the digest of its consequential inputs.  With
 *		identity target the key covers the target alone (as if there were no
 *		inputs), and the digest tells a repeat from a mismatch.
 */
void
action_key(const Action *action, const char *target, Jsonb *inputs, char digest[65], pg_uuid_t *key)
{
	char		none[65];
	char	   *part = digest;

	if (action->key_fields != NULL)
		key_digest_fields(inputs, action->key_fields, digest);
	else
		key_digest(inputs, digest);
	if (action->by_target)
	{
		key_digest(DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"))), none);
		part = none;
	}
	key_make(action->name, strlen(action->name), target, strlen(target), part, strlen(part), key);
}

/*
 * action_may_resend
 *		May an unknown effect be sent again without a look?  Where its owner
 *		said so (at least once), or while the far side still knows its key.
 */
bool
action_may_resend(const Action *action, TimestampTz created_at)
{
	return action->on_unknown == POLICY_RESEND ||
		(action->dedupes_for > 0 && GetCurrentTimestamp() - created_at < action->dedupes_for);
}

/* Does an interval, a list or a name say "clear this"? */
static bool
action_clears(ActionSetting setting, Datum value)
{
	switch (setting)
	{
		case SET_KEY_FIELDS:
		case SET_USABLE_BY:
			return ArrayGetNItems(ARR_NDIM(DatumGetArrayTypeP(value)), ARR_DIMS(DatumGetArrayTypeP(value))) == 0;
		case SET_RESOLVER:
			return VARSIZE_ANY_EXHDR(DatumGetPointer(value)) == 0;
		case SET_IDENTITY:
		case SET_ON_UNKNOWN:
		case SET_APPROVALS:
			return false;
		default:
			{
				Interval   *interval = DatumGetIntervalP(value);

				return interval->time == 0 && interval->day == 0 && interval->month == 0;
			}
	}
}

/* Negative and endless intervals help nobody. */
static void
action_check_interval(const char *name, Datum value)
{
	Interval   *interval = DatumGetIntervalP(value);
	double		days = interval->month * 30.0 + interval->day + interval->time / (double) USECS_PER_DAY;

	if (days < 0 || days > 366 * 100)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative, and at most 100 years", name)));
}

/* Elements that are there and say something. */
static void
action_check_list(FunctionCallInfo fcinfo, int argument, const char *name, Oid type)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(argument), type, type == NAMEOID ? NAMEDATALEN : -1, false,
					  type == NAMEOID ? TYPALIGN_CHAR : TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			arg_missing(psprintf("element %d of %s", i + 1, name));
		if (type == NAMEOID)
			(void) get_role_oid(NameStr(*DatumGetName(elements[i])), false);
		else
			arg_check_text(TextDatumGetCString(elements[i]), psprintf("element %d of %s", i + 1, name),
						   EFFECT_MAX_LABEL);
	}
}

/*
 * action_resolver_function
 *		The function of this name, which sweep calls as the role that
 *		registered it: (uuid, text, jsonb) with the columns finding, evidence
 *		and response, and owned by that role or a superuser, so that nobody
 *		else can change what runs under its name.
 */
Oid
action_resolver_function(const char *resolver, Oid role)
{
	Oid			arguments[3] = {UUIDOID, TEXTOID, JSONBOID};
	Oid			function;
	Oid			owner;
	HeapTuple	tuple;

	function = LookupFuncName(compat_name_list(resolver), 3, arguments, true);
	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("resolver %s(uuid, text, jsonb) does not exist", resolver),
				 errhint("It takes (effect_key, target, inputs) and returns (finding effect.finding, "
						 "evidence jsonb, response jsonb).")));
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	if (owner != role && !superuser_arg(owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("resolver %s belongs to another role", resolver),
				 errdetail("It would run as \"%s\", whose resolver only that role or a superuser may write.",
						   GetUserNameFromId(role, false))));
	return function;
}

/* Stored by name, qualified: a reg* column would stop pg_upgrade. */
static char *
action_resolver_name(const char *resolver, Oid role)
{
	Oid			function = action_resolver_function(resolver, role);

	return quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
									  get_func_name(function));
}

/* Only the role that registered it, or a member, changes a registration. */
static void
action_check_owner(const char *action, const ActionRow *row)
{
	Oid			owner = get_role_oid(row->registered_by, true);

	if (superuser() || (OidIsValid(owner) && has_privs_of_role(GetUserId(), owner)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("action \"%s\" was registered by role \"%s\"", action, row->registered_by),
			 errhint("Only a member of that role may change it.")));
}

/* Changing how an action is keyed once it has effects would repeat them all. */
static void
action_check_keying(const char *action, const ActionRow *before, const ActionRow *after)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	uint64		effects;
	bool		same;

	same = before->null[SET_KEY_FIELDS] == after->null[SET_KEY_FIELDS] &&
		(before->null[SET_KEY_FIELDS] ||
		 datum_image_eq(before->value[SET_KEY_FIELDS], after->value[SET_KEY_FIELDS], false, -1)) &&
		strcmp(TextDatumGetCString(before->value[SET_IDENTITY]),
			   TextDatumGetCString(after->value[SET_IDENTITY])) == 0;
	if (same)
		return;
	sql_open(&scope);
	sql_arg_text(&args, action);
	effects = sql_read(&action_has_effects, &args);
	sql_close(&scope);
	if (effects > 0)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_ILLEGAL_STEP),
				 errmsg("action \"%s\" has effects: how it is keyed cannot change", action),
				 errdetail("Every key would be another one, and every effect could happen again."),
				 errhint("Register another action for the new keying.")));
}

/* What the arguments say, laid over what is set. */
static void
action_merge(FunctionCallInfo fcinfo, const ActionRow *before, ActionRow *after)
{
	/* it will run as the role that registered the action */
	Oid			role = get_role_oid(before->registered_by, false);
	static const char *const names[] = {"key_fields", "identity", "on_unknown", "resolver", "settle",
		"timeout", "far_side_dedupes_for", "approvals_required", "approve_within", "keep_body_for",
		"keep_key_for", "usable_by"};

	*after = *before;
	for (int i = 0; i < SET_COUNT; i++)
	{
		Datum		value = PG_GETARG_DATUM(i + 1);

		if (PG_ARGISNULL(i + 1))
			continue;
		if (i == SET_KEY_FIELDS || i == SET_USABLE_BY)
			action_check_list(fcinfo, i + 1, names[i], i == SET_USABLE_BY ? NAMEOID : TEXTOID);
		else if (i == SET_IDENTITY || i == SET_ON_UNKNOWN)
			value = CStringGetTextDatum(arg_enum(fcinfo, i + 1, names[i]));
		else if (i == SET_RESOLVER)
			value = PointerGetDatum(PG_DETOAST_DATUM(value));
		else if (i != SET_APPROVALS)
			action_check_interval(names[i], value);
		after->null[i] = action_clears((ActionSetting) i, value);
		if (i == SET_RESOLVER && !after->null[i])
			value = CStringGetTextDatum(action_resolver_name(TextDatumGetCString(value), role));
		after->value[i] = value;
	}
}

/*
 * The row of an action, locked; one with the defaults, owned by the caller, is
 * made where there is none.  Of two roles that register at once the second
 * finds the first one's row, and its owner.
 */
static void
action_lock_row(const char *action, ActionRow *row)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	NameData	role;

	action_read_row(action, true, row);
	if (row->exists)
		return;
	namestrcpy(&role, GetUserNameFromId(GetUserId(), false));
	sql_open(&scope);
	sql_arg_text(&args, action);
	sql_arg(&args, NameGetDatum(&role), false);
	sql_arg_time(&args, GetCurrentTimestamp());
	(void) sql_write(&action_insert, &args);
	sql_close(&scope);
	action_read_row(action, true, row);
}

static void
action_write(const char *action, const ActionRow *row)
{
	SqlScope	scope;
	SqlArgs		args = {0};

	sql_open(&scope);
	sql_arg_text(&args, action);
	for (int i = 0; i < SET_COUNT; i++)
		sql_arg(&args, row->value[i], row->null[i]);
	sql_arg_time(&args, GetCurrentTimestamp());
	(void) sql_write(&action_update, &args);
	sql_close(&scope);
}

/*
 * effect.set_action(action, key_fields, identity, on_unknown, resolver, settle,
 *		timeout, far_side_dedupes_for, approvals_required, approve_within,
 *		keep_body_for, keep_key_for, usable_by) -> void
 *		NULL keeps what is set; '0', '{}' and '' clear.  Errors: 22004, 22023,
 *		25006, 42501 (registered by another role), 42704 (no such role), 42883
 *		(no such resolver), LE004 (its keying cannot change any more).
 */
Datum
effect_set_action(PG_FUNCTION_ARGS)
{
	char	   *action = arg_text(fcinfo, 0, "action", EFFECT_MAX_KEY);
	ActionRow	before;
	ActionRow	after;

	if (!PG_ARGISNULL(SET_APPROVALS + 1) &&
		(PG_GETARG_INT32(SET_APPROVALS + 1) < 0 || PG_GETARG_INT32(SET_APPROVALS + 1) > ACTION_MAX_APPROVALS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("approvals_required must be from 0 to %d", ACTION_MAX_APPROVALS)));
	begin_writing("effect.set_action()");
	action_lock_row(action, &before);
	action_check_owner(action, &before);
	action_merge(fcinfo, &before, &after);
	action_check_keying(action, &before, &after);
	action_write(action, &after);
	PG_RETURN_VOID();
}
