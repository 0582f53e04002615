/*
 * registry.c
 *	  What registered jobs and registered actions have in common.
 *
 * A registration is one row: settings that a partial update keeps, the role
 * that made it (changing it needs membership), and a list of roles that may use
 * it.  Each room describes its settings in a Registry; this file reads, merges
 * and checks them.  Rows are protected by their row locks.
 *
 * A backend remembers the rows it has read, and which keys have none, in a
 * memory context a registry; at a thousand it begins anew.  Only committed rows
 * of others are remembered: once a transaction has written a registry it reads
 * the table until it ends, whatever its savepoints come to.  A trigger on the
 * table (ALWAYS, so that applied changes count too) tells every backend through
 * the relation cache to forget; the messages are accepted before each use, so a
 * change counts from its commit on.  A message that comes between a look at the
 * table and the remembering of it is seen by registry_changes having moved.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "registry.h"

PG_FUNCTION_INFO_V1(effect_registry_changed);

/* What a backend remembers of one registry at most */
#define REGISTRY_MAX_ROWS	1000

typedef struct RegistryEntry
{
	char		key[EFFECT_MAX_KEY + 1];	/* first: the hash key */
	Registration row;
} RegistryEntry;

static Registry *registries = NULL; /* those that remember something */
static bool registry_listens = false;	/* callbacks registered */
static bool registry_written = false;	/* by this transaction */
static uint64 registry_changes = 0; /* how often we were told to forget */

/* Somebody has changed a registry.  Nothing is freed here: a copy may be under way. */
static void
registry_forget(Oid relid)
{
	for (Registry *registry = registries; registry != NULL; registry = registry->next)
		if (relid == InvalidOid || relid == registry->table)
			registry->known = false;
	registry_changes++;
}

/* What this transaction wrote is everybody's by now, or nobody's. */
static void
registry_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		registry_written = false;
}

static void
registry_listen(void)
{
	if (registry_listens)
		return;
	sql_tell_of_changes(registry_forget);
	RegisterXactCallback(registry_xact_callback, NULL);
	registry_listens = true;
}

/*
 * effect.registry_changed() -> trigger
 *		On effect.job and effect.action, for each row and for TRUNCATE: from its
 *		commit on the change counts in every backend, in ours from now on.
 */
Datum
effect_registry_changed(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("effect.registry_changed() can only be called as a trigger")));
	registry_listen();
	registry_written = true;
	CacheInvalidateRelcache(((TriggerData *) fcinfo->context)->tg_relation);
	return PointerGetDatum(NULL);
}

/* One setting, copied into the current memory context. */
static Datum
registry_copy_value(SettingKind kind, Datum value)
{
	switch (kind)
	{
		case SETTING_INTERVAL:
			return datumCopy(value, false, sizeof(Interval));
		case SETTING_TIME:
			return datumCopy(value, FLOAT8PASSBYVAL, sizeof(TimestampTz));
		case SETTING_PLAIN:
			return value;
		case SETTING_TEXTS:
		case SETTING_ROLES:
		case SETTING_ENUM:
		case SETTING_TEXT:
			break;
	}
	return datumCopy(value, false, -1);
}

static void
registry_copy(const Registry *registry, const Registration *from, Registration *to)
{
	*to = *from;
	if (!from->exists)
		return;
	to->registered_by = pstrdup(from->registered_by);
	for (int i = 0; i < registry->n; i++)
		if (!from->null[i])
			to->value[i] = registry_copy_value(registry->settings[i].kind, from->value[i]);
}

/* Begin to remember, or begin anew. */
static void
registry_start(Registry *registry)
{
	HASHCTL		info = {.keysize = EFFECT_MAX_KEY + 1, .entrysize = sizeof(RegistryEntry)};

	if (registry->context == NULL)
	{
		registry->context = AllocSetContextCreate(TopMemoryContext, "effect registry",
												  ALLOCSET_SMALL_SIZES);
		registry->next = registries;
		registries = registry;
	}
	registry->rows = NULL;
	MemoryContextReset(registry->context);
	info.hcxt = registry->context;
	registry->rows = hash_create("effect registry", 64, &info, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	registry->table = sql_relation(registry->noun);
	registry->known = true;
}

/* What is remembered of a key, in the caller's memory; false: nothing. */
static bool
registry_recall(Registry *registry, const char *key, Registration *row)
{
	RegistryEntry *entry;

	registry_listen();
	AcceptInvalidationMessages();
	if (registry_written)
		return false;
	if (!registry->known || registry->rows == NULL ||
		hash_get_num_entries(registry->rows) >= REGISTRY_MAX_ROWS)
		registry_start(registry);
	entry = hash_search(registry->rows, key, HASH_FIND, NULL);
	if (entry == NULL)
		return false;
	registry_copy(registry, &entry->row, row);
	return true;
}

/* Remember what the table says, unless that may have changed since the look. */
static void
registry_remember(Registry *registry, const char *key, const Registration *row, uint64 seen)
{
	MemoryContext caller;
	Registration copy;
	RegistryEntry *entry;

	if (registry_written || !registry->known || registry_changes != seen)
		return;
	caller = MemoryContextSwitchTo(registry->context);
	registry_copy(registry, row, &copy);
	entry = hash_search(registry->rows, key, HASH_ENTER, NULL);
	entry->row = copy;
	MemoryContextSwitchTo(caller);
}

/* The row as the table has it, in the caller's memory. */
static void
registry_look(Registry *registry, const char *key, bool lock, Registration *row)
{
	SqlScope	scope;
	SqlArgs		args = {0};

	memset(row, 0, sizeof(*row));
	sql_open(&scope);
	sql_arg_text(&args, key);
	row->exists = (lock ? sql_write(&registry->lock, &args) : sql_read(&registry->select, &args)) > 0;
	for (int i = 0; i < registry->n; i++)
		row->null[i] = !row->exists || !sql_column_copy(&scope, i + 1, &row->value[i]);
	if (row->exists)
		row->registered_by = sql_column_text(&scope, registry->n + 1);
	sql_close(&scope);
}

/*
 * registry_read
 *		The latest row, in the caller's memory.  With "lock", for someone who
 *		will change it: from the table, locked.
 */
void
registry_read(Registry *registry, const char *key, bool lock, Registration *row)
{
	uint64		seen;

	if (!lock && registry_recall(registry, key, row))
		return;
	seen = registry_changes;
	registry_look(registry, key, lock, row);
	if (!lock)
		registry_remember(registry, key, row, seen);
}

/* A setting as microseconds, months taken as 30 days; 0: not set. */
int64
registry_microseconds(const Registration *row, int setting)
{
	Interval   *interval;

	if (row->null[setting])
		return 0;
	interval = DatumGetIntervalP(row->value[setting]);
	return interval->time + (interval->day + interval->month * INT64CONST(30)) * USECS_PER_DAY;
}

/* May the current role use it?  42501 where its list of roles says no. */
void
registry_check_usable(Registry *registry, const char *key, const Registration *row, int setting)
{
	Datum	   *roles;
	int			n;

	if (row->null[setting] || superuser())
		return;
	deconstruct_array(DatumGetArrayTypeP(row->value[setting]), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &roles, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		Oid			role = get_role_oid(NameStr(*DatumGetName(roles[i])), true);

		if (OidIsValid(role) && has_privs_of_role(GetUserId(), role))
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("role \"%s\" may not use %s \"%s\"", GetUserNameFromId(GetUserId(), false),
					registry->noun, key),
			 errhint("Its owner sets who may: effect.set_%s(..., usable_by => ...).", registry->noun)));
}

/* Only the role that registered it, or a member, changes a registration. */
void
registry_check_owner(Registry *registry, const char *key, const Registration *row)
{
	Oid			owner;

	if (!row->exists || superuser())
		return;
	owner = get_role_oid(row->registered_by, true);
	if (OidIsValid(owner) && has_privs_of_role(GetUserId(), owner))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("%s \"%s\" was registered by role \"%s\"", registry->noun, key, row->registered_by),
			 errhint("Only a member of that role may change it.")));
}

/* Elements that are there and say something. */
static void
registry_check_list(Datum list, const char *name, Oid type)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(list), type, type == NAMEOID ? NAMEDATALEN : -1, false,
					  type == NAMEOID ? TYPALIGN_CHAR : TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		const char *element = psprintf("element %d of %s", i + 1, name);

		if (nulls[i])
			arg_missing(element);
		if (type == NAMEOID)
			(void) get_role_oid(NameStr(*DatumGetName(elements[i])), false);
		else
			arg_check_text(TextDatumGetCString(elements[i]), element, EFFECT_MAX_LABEL);
	}
}

/* Negative and endless intervals help nobody. */
static void
registry_check_interval(Datum value, const char *name)
{
	Interval   *interval = DatumGetIntervalP(value);
	double		days = interval->month * 30.0 + interval->day + interval->time / (double) USECS_PER_DAY;

	if (days < 0 || days > 366 * 100)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative, and at most 100 years", name)));
}

static bool
registry_array_is_empty(Datum value)
{
	ArrayType  *array = DatumGetArrayTypeP(value);

	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) == 0;
}

/* One argument checked, and as the column keeps it; true: it says "clear". */
static bool
registry_take(FunctionCallInfo fcinfo, int argument, const Setting *setting, Datum *value)
{
	*value = PG_GETARG_DATUM(argument);
	switch (setting->kind)
	{
		case SETTING_INTERVAL:
			registry_check_interval(*value, setting->name);
			return DatumGetIntervalP(*value)->time == 0 && DatumGetIntervalP(*value)->day == 0 &&
				DatumGetIntervalP(*value)->month == 0;
		case SETTING_TEXTS:
			registry_check_list(*value, setting->name, TEXTOID);
			return registry_array_is_empty(*value);
		case SETTING_ROLES:
			registry_check_list(*value, setting->name, NAMEOID);
			return registry_array_is_empty(*value);
		case SETTING_ENUM:
			*value = CStringGetTextDatum(arg_enum(fcinfo, argument, setting->name));
			return false;
		case SETTING_TEXT:
			*value = PointerGetDatum(PG_DETOAST_DATUM(*value));
			return VARSIZE_ANY_EXHDR(DatumGetPointer(*value)) == 0;
		case SETTING_TIME:
		case SETTING_PLAIN:
			return false;
	}
	return false;
}

/*
 * registry_merge
 *		What the arguments after the key say, laid over what is set: NULL keeps,
 *		'0', '{}' and '' clear.
 */
void
registry_merge(FunctionCallInfo fcinfo, Registry *registry, const Registration *before,
			   Registration *after)
{
	*after = *before;
	for (int i = 0; i < registry->n; i++)
	{
		if (PG_ARGISNULL(i + 1))
			continue;
		after->null[i] = registry_take(fcinfo, i + 1, &registry->settings[i], &after->value[i]);
	}
}

/*
 * Write a registration: a new one belongs to the current role, unless another
 * role's appeared since we looked, which we may not change.
 */
void
registry_write(Registry *registry, const char *key, const Registration *row)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	NameData	role;
	uint64		written;
	Registration theirs;

	namestrcpy(&role, row->exists ? row->registered_by : GetUserNameFromId(GetUserId(), false));
	sql_open(&scope);
	sql_arg_text(&args, key);
	for (int i = 0; i < registry->n; i++)
		sql_arg(&args, row->value[i], row->null[i]);
	sql_arg(&args, NameGetDatum(&role), false);
	sql_arg_time(&args, GetCurrentTimestamp());
	written = sql_write(&registry->upsert, &args);
	sql_close(&scope);
	if (written > 0)
		return;
	registry_read(registry, key, true, &theirs);
	registry_check_owner(registry, key, &theirs);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("%s \"%s\" was registered by another role this instant", registry->noun, key),
			 errhint("Try again.")));
}
