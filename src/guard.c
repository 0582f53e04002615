/*
 * guard.c
 *	  The promises that hold against plain SQL, whoever writes it.
 *
 * Ordinary (ORIGIN) triggers on effect's own tables refuse a lower token, a
 * backward state, a changed key, a deleted row and a truncated table, with
 * LE012.  INSERT is not guarded: pg_restore must be able to load the rows, and
 * constraints see to it that they are well-formed.  A superuser who disables
 * triggers is trusted.  All that lives here between calls is where columns stand
 * in their tables, until the relation cache tells of a change.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/rel.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_guard_keep);
PG_FUNCTION_INFO_V1(effect_guard_lease);
PG_FUNCTION_INFO_V1(effect_guard_run);
PG_FUNCTION_INFO_V1(effect_guard_ledger);
PG_FUNCTION_INFO_V1(effect_guard_unknown);
PG_FUNCTION_INFO_V1(effect_guard_cluster);
PG_FUNCTION_INFO_V1(effect_guard_approval);
PG_FUNCTION_INFO_V1(effect_guard_firing);
PG_FUNCTION_INFO_V1(effect_guard_checkpoint);

static SqlPlan guard_effect_state = {
	"SELECT 1 FROM effect.ledger WHERE effect_key OPERATOR(pg_catalog.=) $1"
	" AND state OPERATOR(pg_catalog.=) 'unknown'::effect.effect_state",
	1, {UUIDOID}
};

static SqlPlan guard_lacks_approval = {
	"SELECT 1 FROM effect.action AS a WHERE a.action OPERATOR(pg_catalog.=) $1"
	" AND a.approvals_required OPERATOR(pg_catalog.>) 0 AND a.approvals_required OPERATOR(pg_catalog.>)"
	" (SELECT pg_catalog.count(*) FROM effect.approval AS p"
	"   WHERE p.effect_key OPERATOR(pg_catalog.=) $2 AND p.consumed_at IS NOT NULL)",
	2, {TEXTOID, UUIDOID}
};

static TriggerData *
guard_data(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("a guard of effect's tables can only be called as a trigger")));
	return (TriggerData *) fcinfo->context;
}

/* LE012, and what was wrong with it. */
static void
guard_refuse(TriggerData *data, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_GUARDED),
			 errmsg("guarded row of effect.%s: %s", RelationGetRelationName(data->tg_relation), why),
			 errhint("Use effect's functions: they keep the promises that this table stands for.")));
}

/* Where a column stands, by its table and the literal that names it here */
typedef struct GuardColumn
{
	Oid			relid;
	const char *name;
	int			number;
} GuardColumn;

#define GUARD_MAX_COLUMNS	128 /* a power of two */

static GuardColumn guard_columns[GUARD_MAX_COLUMNS];

static void
guard_forget(Oid relid)
{
	for (int i = 0; i < GUARD_MAX_COLUMNS; i++)
		if (relid == InvalidOid || guard_columns[i].relid == relid)
			guard_columns[i].relid = InvalidOid;
}

/* The number of a column, which must be a literal of this file. */
static int
guard_number(TriggerData *data, const char *column)
{
	static bool listens = false;
	Oid			relid = RelationGetRelid(data->tg_relation);
	GuardColumn *known = &guard_columns[(relid ^ ((uintptr_t) column * 31 >> 2)) & (GUARD_MAX_COLUMNS - 1)];

	if (known->relid == relid && known->name == column)
		return known->number;
	if (!listens)
		sql_tell_of_changes(guard_forget);
	listens = true;
	known->number = SPI_fnumber(RelationGetDescr(data->tg_relation), column);
	if (known->number <= 0)
	{
		known->relid = InvalidOid;
		elog(ERROR, "effect.%s has no column %s", RelationGetRelationName(data->tg_relation), column);
	}
	known->relid = relid;
	known->name = column;
	return known->number;
}

static Datum
guard_value(TriggerData *data, HeapTuple row, const char *column, bool *isnull)
{
	TupleTableSlot *slot = row == data->tg_newtuple ? data->tg_newslot : data->tg_trigslot;

	return slot_getattr(slot, guard_number(data, column), isnull);
}

/* A column of fixed width that is never NULL, as an integer. */
static int64
guard_int(TriggerData *data, HeapTuple row, const char *column, Oid type)
{
	bool		isnull;
	Datum		value = guard_value(data, row, column, &isnull);

	return type == INT4OID ? DatumGetInt32(value) : DatumGetInt64(value);
}

static char *
guard_label(TriggerData *data, HeapTuple row, const char *column)
{
	bool		isnull;

	return DatumGetCString(DirectFunctionCall1(enum_out, guard_value(data, row, column, &isnull)));
}

/* Is this column the same, byte for byte, before and after? */
static bool
guard_same(TriggerData *data, const char *column)
{
	TupleDesc	desc = RelationGetDescr(data->tg_relation);
	Form_pg_attribute att = TupleDescAttr(desc, guard_number(data, column) - 1);
	bool		old_null;
	bool		new_null;
	Datum		before = guard_value(data, data->tg_trigtuple, column, &old_null);
	Datum		after = guard_value(data, data->tg_newtuple, column, &new_null);

	if (old_null || new_null)
		return old_null && new_null;
	return datum_image_eq(before, after, att->attbyval, att->attlen);
}

static void
guard_unchanged(TriggerData *data, const char *const *columns)
{
	for (; *columns != NULL; columns++)
		if (!guard_same(data, *columns))
			guard_refuse(data, psprintf("%s never changes", *columns));
}

/* DELETE and TRUNCATE where rows stay for ever, UPDATE where they never change. */
Datum
effect_guard_keep(PG_FUNCTION_ARGS)
{
	TriggerData *data = guard_data(fcinfo);

	if (retention_deletes && TRIGGER_FIRED_BY_DELETE(data->tg_event))
		return PointerGetDatum(data->tg_trigtuple);
	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		guard_refuse(data, "its rows are never changed");
	guard_refuse(data, "its rows are kept");
	return PointerGetDatum(NULL);
}

/* A token never goes down, and another holder needs a higher one. */
Datum
effect_guard_lease(PG_FUNCTION_ARGS)
{
	static const char *const fixed[] = {"job_key", NULL};
	TriggerData *data = guard_data(fcinfo);
	int64		old_token = guard_int(data, data->tg_trigtuple, "fencing_token", INT8OID);
	int64		new_token = guard_int(data, data->tg_newtuple, "fencing_token", INT8OID);
	bool		isnull;

	guard_unchanged(data, fixed);
	if (new_token < old_token)
		guard_refuse(data, psprintf("token " INT64_FORMAT " is lower than " INT64_FORMAT,
									new_token, old_token));
	(void) guard_value(data, data->tg_newtuple, "owner", &isnull);
	if (new_token == old_token && !isnull && !guard_same(data, "owner"))
		guard_refuse(data, "another holder needs a higher token");
	return PointerGetDatum(data->tg_newtuple);
}

/* A run ends once; only one that was abandoned may turn out to be fenced. */
Datum
effect_guard_run(PG_FUNCTION_ARGS)
{
	static const char *const fixed[] = {"job_key", "fencing_token", "owner", "started_at", NULL};
	TriggerData *data = guard_data(fcinfo);
	char	   *before = guard_label(data, data->tg_trigtuple, "outcome");
	char	   *after = guard_label(data, data->tg_newtuple, "outcome");

	guard_unchanged(data, fixed);
	if (strcmp(before, after) != 0 && strcmp(before, "running") != 0 &&
		!(strcmp(before, "abandoned") == 0 && strcmp(after, "fenced") == 0))
		guard_refuse(data, psprintf("a run that was %s does not become %s", before, after));
	return PointerGetDatum(data->tg_newtuple);
}

/* The steps an effect may take; a step to the same state is none. */
static bool
guard_step_allowed(const char *before, const char *after)
{
	static const char *const steps[][2] = {
		{"claimed", "submitted"}, {"claimed", "done"}, {"submitted", "done"},
		{"submitted", "unknown"}, {"submitted", "claimed"}, {"unknown", "done"},
		{"unknown", "claimed"}, {"done", "unknown"}
	};

	if (strcmp(before, after) == 0)
		return true;
	for (int i = 0; i < lengthof(steps); i++)
		if (strcmp(before, steps[i][0]) == 0 && strcmp(after, steps[i][1]) == 0)
			return true;
	return false;
}

/* An effect that needs approvals is submitted under approvals that are spent. */
static void
guard_approved(TriggerData *data)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	bool		isnull;
	Datum		action = guard_value(data, data->tg_newtuple, "action", &isnull);
	Datum		key = guard_value(data, data->tg_newtuple, "effect_key", &isnull);
	uint64		lacking;

	sql_open(&scope);
	sql_arg(&args, action, false);
	sql_arg(&args, key, false);
	lacking = sql_read(&guard_lacks_approval, &args);
	sql_close(&scope);
	if (lacking > 0)
		guard_refuse(data, "its approvals are not spent");
}

/* What an effect is never changes; attempts only rise, and so do holders. */
Datum
effect_guard_ledger(PG_FUNCTION_ARGS)
{
	static const char *const fixed[] = {"effect_key", "action", "target", "inputs_digest", "created_at", NULL};
	TriggerData *data = guard_data(fcinfo);
	int64		old_attempt = guard_int(data, data->tg_trigtuple, "attempt", INT4OID);
	int64		new_attempt = guard_int(data, data->tg_newtuple, "attempt", INT4OID);
	char	   *before = guard_label(data, data->tg_trigtuple, "state");
	char	   *after = guard_label(data, data->tg_newtuple, "state");
	bool		pruned;

	guard_unchanged(data, fixed);
	(void) guard_value(data, data->tg_newtuple, "inputs", &pruned);
	pruned = pruned && !guard_same(data, "inputs");
	if (!pruned && !guard_same(data, "inputs"))
		guard_refuse(data, "inputs never change");
	if (pruned && strcmp(after, "done") != 0)
		guard_refuse(data, "the inputs of an effect that has not ended are kept");
	if (new_attempt < old_attempt)
		guard_refuse(data, "attempts are only counted up");
	if (new_attempt == old_attempt &&
		!(guard_same(data, "fencing_token") && guard_same(data, "job_key")))
		guard_refuse(data, "another holder makes another attempt");
	if (new_attempt > old_attempt && strcmp(before, "claimed") != 0)
		guard_refuse(data, psprintf("no attempt may follow one that is %s", before));
	if (strcmp(before, "claimed") == 0 && strcmp(after, "submitted") == 0)
		guard_approved(data);
	if (!guard_step_allowed(before, after))
		guard_refuse(data, psprintf("an effect that is %s does not become %s", before, after));
	return PointerGetDatum(data->tg_newtuple);
}

/* What is known of an unknown effect stays until the effect is not unknown. */
Datum
effect_guard_unknown(PG_FUNCTION_ARGS)
{
	TriggerData *data = guard_data(fcinfo);
	SqlScope	scope;
	SqlArgs		args = {0};
	bool		isnull;
	Datum		key = guard_value(data, data->tg_trigtuple, "effect_key", &isnull);
	uint64		unknown;
	static const char *const fixed[] = {"effect_key", NULL};

	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
	{
		guard_unchanged(data, fixed);
		return PointerGetDatum(data->tg_newtuple);
	}
	if (retention_deletes)
		return PointerGetDatum(data->tg_trigtuple);
	sql_open(&scope);
	sql_arg(&args, key, isnull);
	unknown = sql_read(&guard_effect_state, &args);
	sql_close(&scope);
	if (unknown > 0)
		guard_refuse(data, "its effect is still unknown");
	return PointerGetDatum(data->tg_trigtuple);
}

/* An epoch never goes down. */
Datum
effect_guard_cluster(PG_FUNCTION_ARGS)
{
	TriggerData *data = guard_data(fcinfo);

	if (guard_int(data, data->tg_newtuple, "epoch", INT8OID) <
		guard_int(data, data->tg_trigtuple, "epoch", INT8OID))
		guard_refuse(data, "the epoch never goes down");
	return PointerGetDatum(data->tg_newtuple);
}

/* Spent is final, and whose it is never changes. */
Datum
effect_guard_approval(PG_FUNCTION_ARGS)
{
	static const char *const fixed[] = {"effect_key", "approver", NULL};
	static const char *const spent[] = {"consumed_at", "consumed_attempt", "revoked_at", "terms",
		"expires_at", "approved_at", "role_name", "revoked_by", NULL};
	TriggerData *data = guard_data(fcinfo);
	bool		unspent;

	guard_unchanged(data, fixed);
	(void) guard_value(data, data->tg_trigtuple, "consumed_at", &unspent);
	if (!unspent)
		guard_unchanged(data, spent);
	return PointerGetDatum(data->tg_newtuple);
}

/* A firing that is finished stays so; one that waits may end its wait. */
Datum
effect_guard_firing(PG_FUNCTION_ARGS)
{
	static const char *const fixed[] = {"job_key", "firing", NULL};
	TriggerData *data = guard_data(fcinfo);
	bool		waits;

	(void) guard_value(data, data->tg_trigtuple, "finished_at", &waits);
	if (!waits)
		guard_refuse(data, "a finished firing is kept as it is");
	if (TRIGGER_FIRED_BY_DELETE(data->tg_event))
		return PointerGetDatum(data->tg_trigtuple);
	guard_unchanged(data, fixed);
	return PointerGetDatum(data->tg_newtuple);
}

/* A later run's checkpoint is not overwritten by an earlier one's. */
Datum
effect_guard_checkpoint(PG_FUNCTION_ARGS)
{
	static const char *const fixed[] = {"job_key", "firing", NULL};
	TriggerData *data = guard_data(fcinfo);

	guard_unchanged(data, fixed);
	if (guard_int(data, data->tg_newtuple, "fencing_token", INT8OID) <
		guard_int(data, data->tg_trigtuple, "fencing_token", INT8OID))
		guard_refuse(data, "a checkpoint of a later run stands");
	return PointerGetDatum(data->tg_newtuple);
}
