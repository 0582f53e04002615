/*
 * sql.c
 *	  The one door to effect's own tables.
 *
 * Statements are static SqlPlan structs in their rooms.  A plan is prepared at
 * first use, kept for the life of the backend, and prepared again when the
 * catalogs have invalidated it or the search path it was analysed under is no
 * longer the session's.  It is planned without sequential scans: at
 * SERIALIZABLE a sequential scan of a small table conflicts with every writer
 * of it.  Every name in a statement is qualified, operators included.
 *
 * Between sql_open() and sql_close() we are the owner of the tables.  No
 * PG_TRY is needed for that: an aborted (sub)transaction puts the user back.
 * What a statement sees is always the latest committed state, never the
 * transaction's snapshot, which above READ COMMITTED predates the locks we
 * have just taken (the rule, and the call, are those of ri_triggers.c).
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "effect.h"

/*
 * The relations of ours that are asked for at every call, and their owner.  The
 * extension may be dropped and made again in this session, an index replaced, a
 * table given to another role: any change of one of them, or of a schema's name,
 * makes us look again.
 */
typedef struct SqlRelation
{
	const char *name;
	Oid			relid;			/* InvalidOid: look */
} SqlRelation;

static SqlRelation sql_relations[] = {
	{"lease"}, {"lease_pkey"}, {"ledger"}, {"ledger_pkey"}, {"run"}, {"run_pkey"}, {"cluster"},
	{"cluster_pkey"}, {"checkpoint"}, {"checkpoint_pkey"}, {"firing"}, {"firing_pkey"}
};
static Oid	sql_owner_known = InvalidOid;

/* Rooms that remember something of a relation, to be told that it has changed */
#define SQL_MAX_LISTENERS	8

static SqlForget sql_listeners[SQL_MAX_LISTENERS];
static int	sql_nlisteners = 0;

/*
 * The one relation cache callback of this library: a backend has ten slots for
 * all that it loads, and whoever finds none left dies.
 */
static void
sql_forget_relation(Datum arg, Oid relid)
{
	for (int i = 0; i < lengthof(sql_relations); i++)
		if (relid == InvalidOid || relid == sql_relations[i].relid)
		{
			sql_relations[i].relid = InvalidOid;
			sql_owner_known = InvalidOid;
		}
	for (int i = 0; i < sql_nlisteners; i++)
		sql_listeners[i] (relid);
}

static void
sql_forget_schema(Datum arg, int cache, uint32 hash)
{
	sql_forget_relation(arg, InvalidOid);
}

static void
sql_listen(void)
{
	static bool listens = false;

	if (listens)
		return;
	CacheRegisterRelcacheCallback(sql_forget_relation, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, sql_forget_schema, (Datum) 0);
	listens = true;
}

/* From now on this room is told of every relation that changes (0: any may have). */
void
sql_tell_of_changes(SqlForget forget)
{
	sql_listen();
	Assert(sql_nlisteners < SQL_MAX_LISTENERS);
	sql_listeners[sql_nlisteners++] = forget;
}

/* As the catalogs have it now. */
static Oid
sql_look_up(const char *name)
{
	Oid			schema = get_namespace_oid("effect", true);
	Oid			relid = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"effect\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION effect.")));
	return relid;
}

/*
 * sql_relation
 *		The OID of one of effect's own relations.
 */
Oid
sql_relation(const char *name)
{
	sql_listen();
	for (int i = 0; i < lengthof(sql_relations); i++)
		if (strcmp(sql_relations[i].name, name) == 0)
		{
			if (!OidIsValid(sql_relations[i].relid))
				sql_relations[i].relid = sql_look_up(name);
			return sql_relations[i].relid;
		}
	return sql_look_up(name);
}

/* The OID of one of effect's own functions that has one signature. */
Oid
sql_function(const char *name)
{
	return LookupFuncName(list_make2(makeString("effect"), makeString(pstrdup(name))), -1, NULL, false);
}

/* The role that owns the tables, whoever installed them. */
Oid
sql_owner(void)
{
	Oid			relid = sql_relation("lease");
	HeapTuple	tuple;
	Oid			owner;

	if (OidIsValid(sql_owner_known))
		return sql_owner_known;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for effect.lease");
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	sql_owner_known = owner;
	return owner;
}

/* Become the owner of the tables and connect to SPI. */
void
sql_open(SqlScope *scope)
{
	Oid			owner = sql_owner();

	scope->caller = CurrentMemoryContext;
	GetUserIdAndSecContext(&scope->user, &scope->security);
	SetUserIdAndSecContext(owner, scope->security | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

/* Undo sql_open(). */
void
sql_close(SqlScope *scope)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	SetUserIdAndSecContext(scope->user, scope->security);
}

/*
 * Prepare and plan, with sequential scans and JIT off for the planning alone (a
 * plan touches a few rows, whatever it is estimated to cost).  The generic plan is
 * asked for, so that no execution plans again by itself under the caller's
 * settings.
 */
static void
sql_prepare(SqlPlan *plan)
{
	int			nest = NewGUCNestLevel();
	SPIPlanPtr	prepared;
	CachedPlan *cached;

	(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("jit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	prepared = SPI_prepare_cursor(plan->sql, plan->nargs, plan->args, CURSOR_OPT_GENERIC_PLAN);
	if (prepared == NULL || SPI_keepplan(prepared) != 0)
		elog(ERROR, "could not prepare \"%s\": %s", plan->sql, SPI_result_code_string(SPI_result));
	cached = SPI_plan_get_cached_plan(prepared);
	if (cached != NULL)
		ReleaseCachedPlan(cached, CurrentResourceOwner);
	AtEOXact_GUC(true, nest);
	plan->search_path = MemoryContextStrdup(TopMemoryContext, namespace_search_path);
	plan->plan = prepared;		/* last: only a whole plan is kept */
}

/* The kept plan, made or made again where need be. */
static SPIPlanPtr
sql_plan(SqlPlan *plan)
{
	if (plan->plan != NULL && SPI_plan_is_valid(plan->plan) &&
		strcmp(plan->search_path, namespace_search_path) == 0)
		return plan->plan;
	if (plan->plan != NULL)
	{
		SPIPlanPtr	old = plan->plan;

		plan->plan = NULL;
		pfree(plan->search_path);
		SPI_freeplan(old);
	}
	sql_prepare(plan);
	return plan->plan;
}

/* Run a statement on the latest committed state; the number of rows. */
static uint64
sql_run(SqlPlan *plan, SqlArgs *args, bool read_only)
{
	SPIPlanPtr	prepared = sql_plan(plan);
	int			result;

	Assert(args->n == plan->nargs);
	result = SPI_execute_snapshot(prepared, args->value, args->null, GetLatestSnapshot(),
								  InvalidSnapshot, read_only, true, 0);
	if (result < 0)
		elog(ERROR, "could not run \"%s\": %s", plan->sql, SPI_result_code_string(result));
	return SPI_processed;
}

uint64
sql_read(SqlPlan *plan, SqlArgs *args)
{
	return sql_run(plan, args, true);
}

uint64
sql_write(SqlPlan *plan, SqlArgs *args)
{
	stats_ride();				/* this transaction writes anyway */
	return sql_run(plan, args, false);
}

/* Append one argument; an SqlArgs starts as {0}. */
void
sql_arg(SqlArgs *args, Datum value, bool isnull)
{
	Assert(args->n < SQL_MAX_ARGS);
	args->value[args->n] = value;
	args->null[args->n] = isnull ? 'n' : ' ';
	args->n++;
}

void
sql_arg_text(SqlArgs *args, const char *value)
{
	sql_arg(args, value ? CStringGetTextDatum(value) : (Datum) 0, value == NULL);
}

/* 0 stands for NULL: no call of ours happens at the start of the year 2000. */
void
sql_arg_time(SqlArgs *args, TimestampTz value)
{
	sql_arg(args, TimestampTzGetDatum(value), value == 0);
}

void
sql_arg_jsonb(SqlArgs *args, Jsonb *value)
{
	sql_arg(args, JsonbPGetDatum(value), value == NULL);
}

void
sql_arg_uuid(SqlArgs *args, const pg_uuid_t *value)
{
	sql_arg(args, UUIDPGetDatum(value), value == NULL);
}

/* A column of the first row of the last result; false: it is NULL. */
bool
sql_column(int column, Datum *value)
{
	bool		isnull;

	*value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &isnull);
	return !isnull;
}

/* An int4 or int8 column; 0 for NULL. */
int64
sql_column_int(int column)
{
	Datum		value;

	if (!sql_column(column, &value))
		return 0;
	return SPI_gettypeid(SPI_tuptable->tupdesc, column) == INT4OID
		? DatumGetInt32(value) : DatumGetInt64(value);
}

/* Copies into the caller's context, so that they outlive SPI_finish(). */
bool
sql_column_copy(SqlScope *scope, int column, Datum *value)
{
	Form_pg_attribute att = TupleDescAttr(SPI_tuptable->tupdesc, column - 1);
	MemoryContext old;

	if (!sql_column(column, value))
		return false;
	old = MemoryContextSwitchTo(scope->caller);
	if (att->attlen == -1)
		*value = PointerGetDatum(PG_DETOAST_DATUM_COPY(*value));
	else
		*value = datumCopy(*value, att->attbyval, att->attlen);
	MemoryContextSwitchTo(old);
	return true;
}

char *
sql_column_text(SqlScope *scope, int column)
{
	Datum		value;
	MemoryContext old;
	char	   *result;

	if (!sql_column(column, &value))
		return NULL;
	old = MemoryContextSwitchTo(scope->caller);
	result = TextDatumGetCString(value);
	MemoryContextSwitchTo(old);
	return result;
}

TimestampTz
sql_column_time(int column)
{
	Datum		value;

	return sql_column(column, &value) ? DatumGetTimestampTz(value) : 0;
}

Jsonb *
sql_column_jsonb(SqlScope *scope, int column)
{
	Datum		value;
	MemoryContext old;
	Jsonb	   *jsonb;

	if (!sql_column(column, &value))
		return NULL;
	old = MemoryContextSwitchTo(scope->caller);
	jsonb = DatumGetJsonbPCopy(value);
	MemoryContextSwitchTo(old);
	return jsonb;
}

pg_uuid_t *
sql_column_uuid(SqlScope *scope, int column)
{
	Datum		value;
	pg_uuid_t  *uuid;

	if (!sql_column(column, &value))
		return NULL;
	uuid = MemoryContextAlloc(scope->caller, sizeof(pg_uuid_t));
	*uuid = *DatumGetUUIDP(value);
	return uuid;
}

/* The first column of every row of the last result, in the caller's memory. */
char **
sql_rows_text(SqlScope *scope, int *n)
{
	char	  **texts = MemoryContextAlloc(scope->caller, (SPI_processed + 1) * sizeof(char *));

	for (*n = 0; *n < SPI_processed; (*n)++)
		texts[*n] = MemoryContextStrdup(scope->caller, SPI_getvalue(SPI_tuptable->vals[*n],
																	SPI_tuptable->tupdesc, 1));
	return texts;
}

/* The same for uuids, from a row on; a NULL is left out. */
pg_uuid_t *
sql_rows_uuid(SqlScope *scope, int from, int *n)
{
	pg_uuid_t  *uuids = MemoryContextAlloc(scope->caller, (SPI_processed + 1) * sizeof(pg_uuid_t));

	*n = 0;
	for (uint64 row = from; row < SPI_processed; row++)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 1, &isnull);

		if (!isnull)
			uuids[(*n)++] = *DatumGetUUIDP(value);
	}
	return uuids;
}

/*
 * sql_try
 *		Do something in a subtransaction.  NULL: done; else what it raised, when
 *		all it did is undone.  Never inside a scope: SPI's connection would go
 *		with the subtransaction.
 */
ErrorData *
sql_try(void (*work) (void *), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		work(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}

/*
 * sql_is_ours
 *		Was this row version written by the current transaction, its live and
 *		committed subtransactions included?  xmin as SQL shows it is the raw
 *		one, which may be frozen and years old, so a match is confirmed from
 *		the tuple's header.  Call as the owner, between open and close.
 */
bool
sql_is_ours(const char *relation, TransactionId xmin, ItemPointer tid)
{
	Relation	rel;
	TupleTableSlot *slot;
	bool		ours = false;

	if (!TransactionIdIsCurrentTransactionId(xmin))
		return false;
	rel = table_open(sql_relation(relation), AccessShareLock);
	slot = table_slot_create(rel, NULL);
	if (table_tuple_fetch_row_version(rel, tid, SnapshotSelf, slot))
	{
		bool		free_it;
		HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, &free_it);

		ours = !HeapTupleHeaderXminFrozen(tuple->t_data);
		if (free_it)
			heap_freetuple(tuple);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	return ours;
}

/*
 * sql_probe_key
 *		Is there a ledger row of this key, or one that an open transaction of
 *		someone else has inserted?  Only a dirty snapshot can tell the latter,
 *		and an INSERT would wait for it.
 *
 * With "wait", wait for such a transaction to end and look again (lock_timeout
 * and deadlock detection apply); then PROBE_IN_FLIGHT is never returned.
 */
SqlProbe
sql_probe_key(const pg_uuid_t *key, bool wait)
{
	Relation	ledger = table_open(sql_relation("ledger"), AccessShareLock);
	Relation	index = index_open(sql_relation("ledger_pkey"), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(ledger, NULL);
	SqlProbe	found;
	TransactionId rival;
	SnapshotData dirty;
	ScanKeyData scankey;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&scankey, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(key));
	do
	{
		IndexScanDesc scan = compat_index_beginscan(ledger, index, &dirty, 1);

		index_rescan(scan, &scankey, 1, NULL, 0);
		rival = InvalidTransactionId;
		found = PROBE_ABSENT;
		if (index_getnext_slot(scan, ForwardScanDirection, slot))
		{
			rival = dirty.xmin;
			found = TransactionIdIsValid(rival) ? PROBE_IN_FLIGHT : PROBE_PRESENT;
		}
		ExecClearTuple(slot);
		index_endscan(scan);
		if (found == PROBE_IN_FLIGHT && wait)
			XactLockTableWait(rival, ledger, NULL, XLTW_None);
	} while (found == PROBE_IN_FLIGHT && wait);

	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(ledger, AccessShareLock);
	return found;
}

/*
 * lock_advisory
 *		Take one of our own advisory locks until the end of the transaction.
 *		Session-level locks would break behind a pooler.
 */
bool
lock_advisory(uint16 class, uint64 key, LOCKMODE mode, bool wait)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key, class);
	return LockAcquire(&tag, mode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

void
unlock_advisory(uint16 class, uint64 key, LOCKMODE mode)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key, class);
	(void) LockRelease(&tag, mode, false);
}
