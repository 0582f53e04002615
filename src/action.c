/*
 * action.c
 *	  A registered kind of effect: how it is keyed, how an unknown one is
 *	  treated, who may use it.
 *
 * The registry is effect.action, protected by its row locks; a call reads the
 * latest row once and carries it along.  What a backend remembers of it lives in
 * registry.c.  How an action is keyed cannot change once it has effects: every
 * key would rotate and every effect could happen again.
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

#include "registry.h"

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

static const Setting action_settings[SET_COUNT] = {
	{"key_fields", SETTING_TEXTS}, {"identity", SETTING_ENUM}, {"on_unknown", SETTING_ENUM},
	{"resolver", SETTING_TEXT}, {"settle", SETTING_INTERVAL}, {"timeout", SETTING_INTERVAL},
	{"far_side_dedupes_for", SETTING_INTERVAL}, {"approvals_required", SETTING_PLAIN},
	{"approve_within", SETTING_INTERVAL}, {"keep_body_for", SETTING_INTERVAL},
	{"keep_key_for", SETTING_INTERVAL}, {"usable_by", SETTING_ROLES}
};

#define ACTION_COLUMNS \
	"key_fields, identity, on_unknown, resolver, settle, timeout, far_side_dedupes_for," \
	" approvals_required, approve_within, keep_body_for, keep_key_for, usable_by"

#define ACTION_SELECT \
	"SELECT key_fields, identity::pg_catalog.text, on_unknown::pg_catalog.text, resolver, settle," \
	" timeout, far_side_dedupes_for, approvals_required, approve_within, keep_body_for," \
	" keep_key_for, usable_by, registered_by::pg_catalog.text FROM effect.action" \
	" WHERE action OPERATOR(pg_catalog.=) $1"

static Registry actions = {
	"action", SET_COUNT, action_settings,
	{ACTION_SELECT, 1, {TEXTOID}},
	{ACTION_SELECT " FOR UPDATE", 1, {TEXTOID}},
	{
	"INSERT INTO effect.action AS a (action, " ACTION_COLUMNS ", registered_by, registered_at, changed_at)"
	" VALUES ($1, $2, $3::effect.identity, $4::effect.unknown_policy, $5, $6, $7, $8, $9, $10, $11,"
	" $12, $13, $14, $15, $15)"
	" ON CONFLICT (action) DO UPDATE SET (" ACTION_COLUMNS ", changed_at) ="
	" ($2, $3::effect.identity, $4::effect.unknown_policy, $5, $6, $7, $8, $9, $10, $11, $12, $13, $15)"
	" WHERE a.registered_by OPERATOR(pg_catalog.=) $14",
	15, {TEXTOID, TEXTARRAYOID, TEXTOID, TEXTOID, TEXTOID, INTERVALOID, INTERVALOID, INTERVALOID,
		INT4OID, INTERVALOID, INTERVALOID, INTERVALOID, NAMEARRAYOID, NAMEOID, TIMESTAMPTZOID}
	}
};

static SqlPlan action_has_effects = {
	"SELECT 1 FROM effect.ledger WHERE action OPERATOR(pg_catalog.=) $1 LIMIT 1",
	1, {TEXTOID}
};

static int
action_policy(const Registration *row)
{
	char	   *label = TextDatumGetCString(row->value[SET_ON_UNKNOWN]);

	for (int i = 0; i < lengthof(action_policies); i++)
		if (strcmp(label, action_policies[i]) == 0)
			return i;
	elog(ERROR, "unexpected policy \"%s\"", label);
	pg_unreachable();
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
	Registration	row;

	memset(action, 0, sizeof(*action));
	action->name = name;
	action->settle = (int64) effect_default_settle * INT64CONST(1000);
	action->timeout = (int64) effect_default_timeout * INT64CONST(1000);
	registry_read(&actions, name, false, &row);
	if (!row.exists && to_use && effect_require_registered_actions)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_NOT_FOUND),
				 errmsg("action \"%s\" is not registered", name),
				 errhint("Register it with effect.set_action(); effect.require_registered_actions is on.")));
	if (!row.exists)
		return;
	if (to_use)
		registry_check_usable(&actions, name, &row, SET_USABLE_BY);
	action->registered = true;
	action->registered_by = row.registered_by;
	action->key_fields = row.null[SET_KEY_FIELDS] ? NULL : DatumGetArrayTypeP(row.value[SET_KEY_FIELDS]);
	action->by_target = strcmp(TextDatumGetCString(row.value[SET_IDENTITY]), "target") == 0;
	action->on_unknown = (UnknownPolicy) action_policy(&row);
	action->resolver = row.null[SET_RESOLVER] ? NULL : TextDatumGetCString(row.value[SET_RESOLVER]);
	if (!row.null[SET_SETTLE])
		action->settle = registry_microseconds(&row, SET_SETTLE);
	if (!row.null[SET_TIMEOUT])
		action->timeout = registry_microseconds(&row, SET_TIMEOUT);
	action->dedupes_for = registry_microseconds(&row, SET_DEDUPES_FOR);
	action->approve_within = registry_microseconds(&row, SET_APPROVE_WITHIN);
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
		key_digest_none(none);
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

/* Changing how an action is keyed once it has effects would repeat them all. */
static void
action_check_keying(const char *action, const Registration *before, const Registration *after)
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

/* What a new registration starts from. */
static void
action_defaults(Registration *row)
{
	if (row->exists)
		return;
	row->value[SET_IDENTITY] = CStringGetTextDatum("facts");
	row->value[SET_ON_UNKNOWN] = CStringGetTextDatum("check");
	row->value[SET_APPROVALS] = Int32GetDatum(0);
	row->null[SET_IDENTITY] = row->null[SET_ON_UNKNOWN] = row->null[SET_APPROVALS] = false;
}

/* A resolver runs as the role that registered the action: it must be that role's. */
static void
action_qualify_resolver(const Registration *before, Registration *after)
{
	Oid			role = before->exists ? get_role_oid(before->registered_by, false) : GetUserId();
	char	   *given = TextDatumGetCString(after->value[SET_RESOLVER]);

	after->value[SET_RESOLVER] = CStringGetTextDatum(action_resolver_name(given, role));
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
	Registration before;
	Registration after;

	if (!PG_ARGISNULL(SET_APPROVALS + 1) &&
		(PG_GETARG_INT32(SET_APPROVALS + 1) < 0 || PG_GETARG_INT32(SET_APPROVALS + 1) > ACTION_MAX_APPROVALS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("approvals_required must be from 0 to %d", ACTION_MAX_APPROVALS)));
	begin_writing("effect.set_action()");
	registry_read(&actions, action, true, &before);
	registry_check_owner(&actions, action, &before);
	action_defaults(&before);
	registry_merge(fcinfo, &actions, &before, &after);
	if (!PG_ARGISNULL(SET_RESOLVER + 1) && !after.null[SET_RESOLVER])
		action_qualify_resolver(&before, &after);
	action_check_keying(action, &before, &after);
	registry_write(&actions, action, &after);
	PG_RETURN_VOID();
}
