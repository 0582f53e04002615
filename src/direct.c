/*
 * direct.c
 *	  Rows of the hottest tables, read and written without a statement.
 *
 * Starting a statement through SPI costs several times what it does here: find
 * one row by its primary key, lock it, write its next version.  So these are
 * done with PostgreSQL's own index scan, table_tuple_lock() and
 * ExecSimpleRelationInsert()/Update(), which logical replication applies rows
 * with.  What the executor would have seen to, and who sees to it:
 *
 *		read-only, recovery, parallel	direct_begin(), again
 *		privileges of the owner			direct_is_plain()
 *		row security, rules, children	direct_is_plain()
 *		statement and AFTER triggers	direct_is_plain()
 *		BEFORE ROW triggers, NOT NULL, CHECK, indexes, TOAST
 *										the functions named above
 *		SSI								the index and the heap, as ever
 *		what an earlier command of this transaction wrote
 *										CommandCounterIncrement() on both sides
 *		rows that change under us		direct_find(), as nodeLockRows.c does
 *
 * direct_is_plain() says no to a table that is not as the install script made it
 * (somebody's own trigger, rule, policy, column or kind of index), and the
 * caller runs its statement instead.
 *
 * What is prepared for a table (its columns, scan keys, trigger and constraint
 * expressions, slots) lives in a memory context of its own, for the life of the
 * backend or until the relation cache tells that the table or one of its indexes
 * has changed.  It holds no lock, pin or reference between calls.  One use at a
 * time: a second one inside of it is told no.  If a (sub)transaction aborts in
 * the middle of a use, all that was prepared for that table is thrown away.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "direct.h"

struct DirectState
{
	MemoryContext context;		/* of this and all below */
	Oid			relid;
	Oid			pkey;
	bool		ready;			/* whole */
	bool		plain;			/* false: statements only */
	bool		stale;			/* the table has changed since */
	bool		written;		/* what writing needs is prepared */
	AttrNumber	attnum[DIRECT_MAX_COLUMNS];
	TupleDesc	desc;			/* a copy of our own */
	TupleTableSlot *row;		/* as found */
	TupleTableSlot *next;		/* as written */
	ItemPointerData last;		/* where a row was found or written last; a hint */
	ScanKeyData keys[DIRECT_MAX_KEYS];
	EState	   *estate;
	ResultRelInfo *target;
	EPQState	epq;
	int			nindexes;
	Oid		   *indexes;
	/* during a use */
	Relation	rel;			/* NULL: not in use */
	LOCKMODE	mode;
};

static DirectTable *direct_tables = NULL;	/* those with a state */
static bool direct_listens = false;

/* The table or an index of it has changed: prepare again before the next use. */
static void
direct_forget(Oid relid)
{
	for (DirectTable *table = direct_tables; table != NULL; table = table->following)
	{
		DirectState *state = table->state;

		if (state == NULL)
			continue;
		if (relid == InvalidOid || relid == state->relid)
			state->stale = true;
		for (int i = 0; i < state->nindexes; i++)
			if (relid == state->indexes[i])
				state->stale = true;
	}
}

static void
direct_discard(DirectTable *table)
{
	MemoryContext context = table->state->context;

	table->state = NULL;
	MemoryContextDelete(context);
}

/* A use that was cut short: its locks and pins go with the transaction. */
static void
direct_abandon(void)
{
	for (DirectTable *table = direct_tables; table != NULL; table = table->following)
		if (table->state != NULL && table->state->rel != NULL)
			direct_discard(table);
}

static void
direct_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT)
		direct_abandon();
}

static void
direct_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		direct_abandon();
}

static void
direct_listen(void)
{
	if (direct_listens)
		return;
	sql_tell_of_changes(direct_forget);
	RegisterXactCallback(direct_xact_callback, NULL);
	RegisterSubXactCallback(direct_subxact_callback, NULL);
	direct_listens = true;
}

/* Are its triggers effect's own, and all of the kind that we fire? */
static bool
direct_triggers_are_plain(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	if (triggers == NULL)
		return true;
	if (triggers->trig_insert_before_statement || triggers->trig_insert_after_statement ||
		triggers->trig_update_before_statement || triggers->trig_update_after_statement ||
		triggers->trig_insert_after_row || triggers->trig_update_after_row)
		return false;
	for (int i = 0; i < triggers->numtriggers; i++)
		if (get_func_namespace(triggers->triggers[i].tgfoid) != RelationGetNamespace(rel) ||
			triggers->triggers[i].tgqual != NULL || triggers->triggers[i].tgnattr > 0)
			return false;
	return true;
}

/* Each column there is, and no other; where they stand. */
static bool
direct_columns_are_plain(const DirectTable *table, Relation rel, AttrNumber *attnum)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			live = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped)
			continue;
		if (TupleDescAttr(desc, i)->attgenerated != '\0' || TupleDescAttr(desc, i)->attidentity != '\0')
			return false;
		live++;
	}
	for (int i = 0; i < table->ncolumns; i++)
	{
		attnum[i] = get_attnum(RelationGetRelid(rel), table->columns[i]);
		if (attnum[i] <= 0)
			return false;
	}
	return live == table->ncolumns;
}

/* Its indexes: plain btrees, one of them on the key as we have it. */
static bool
direct_indexes_are_plain(const DirectTable *table, DirectState *state)
{
	bool		keyed = false;

	for (int i = 0; i < state->nindexes; i++)
	{
		Relation	index = index_open(state->indexes[i], AccessShareLock);
		bool		plain = index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indimmediate &&
			!index->rd_index->indisexclusion && index->rd_index->indisvalid &&
			RelationGetIndexExpressions(index) == NIL;

		if (plain && state->indexes[i] == state->pkey)
		{
			keyed = index->rd_index->indnkeyatts == table->nkeys;
			for (int k = 0; keyed && k < table->nkeys; k++)
				keyed = index->rd_index->indkey.values[k] == state->attnum[k];
		}
		index_close(index, AccessShareLock);
		if (!plain)
			return false;
	}
	return keyed;
}

/* May this table be read and written without a statement? */
static bool
direct_is_plain(const DirectTable *table, DirectState *state, Relation rel)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relispartition ||
		rel->rd_rel->relhassubclass || rel->rd_rel->relrowsecurity || rel->rd_rules != NULL)
		return false;
	if (pg_class_aclcheck(state->relid, sql_owner(), ACL_SELECT) != ACLCHECK_OK ||
		pg_class_aclcheck(state->relid, sql_owner(), ACL_INSERT) != ACLCHECK_OK ||
		pg_class_aclcheck(state->relid, sql_owner(), ACL_UPDATE) != ACLCHECK_OK)
		return false;
	return direct_triggers_are_plain(rel) && direct_columns_are_plain(table, rel, state->attnum) &&
		direct_indexes_are_plain(table, state);
}

/* The scan keys, once for all: equality of each column of the primary key. */
static void
direct_prepare_keys(const DirectTable *table, DirectState *state)
{
	for (int i = 0; i < table->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(state->desc, state->attnum[i] - 1);
		RegProcedure equal = att->atttypid == UUIDOID ? F_UUID_EQ
			: att->atttypid == INT8OID ? F_INT8EQ : att->atttypid == BOOLOID ? F_BOOLEQ : F_TEXTEQ;

		if (equal == F_TEXTEQ && att->atttypid != TEXTOID)
			elog(ERROR, "effect.%s has a key of type %u", table->name, att->atttypid);
		ScanKeyEntryInitialize(&state->keys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid,
							   att->attcollation, equal, (Datum) 0);
	}
}

/* Prepare to read a table, which is open and locked. */
static void
direct_prepare(DirectTable *table, Relation rel)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "effect direct",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	DirectState *state = palloc0(sizeof(DirectState));
	List	   *indexes;
	ListCell   *cell;

	state->context = context;
	state->relid = RelationGetRelid(rel);
	if (!table->listed)
	{
		table->following = direct_tables;
		direct_tables = table;
		table->listed = true;
	}
	table->state = state;		/* from here on we hear of its changes */
	state->pkey = sql_relation(table->pkey);
	indexes = RelationGetIndexList(rel);
	state->indexes = palloc(Max(list_length(indexes), 1) * sizeof(Oid));
	foreach(cell, indexes)
		state->indexes[state->nindexes++] = lfirst_oid(cell);
	state->plain = direct_is_plain(table, state, rel);
	state->desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	state->row = MakeSingleTupleTableSlot(state->desc, table_slot_callbacks(rel));
	state->next = MakeSingleTupleTableSlot(state->desc, table_slot_callbacks(rel));
	if (state->plain)
		direct_prepare_keys(table, state);
	else
		ereport(DEBUG1,
				(errmsg_internal("effect.%s is not as it was made: it is used through statements",
								 table->name)));
	MemoryContextSwitchTo(caller);
	state->ready = true;		/* last: only a whole one is used */
}

/*
 * direct_begin
 *		Begin a use of the table, under this lock, which is kept to the end of
 *		the transaction.  false: not directly; run a statement.
 */
bool
direct_begin(DirectTable *table, LOCKMODE mode)
{
	Relation	rel;

	direct_listen();
	if (table->state != NULL && table->state->rel != NULL)
		return false;			/* in use further out */
	if (mode == RowExclusiveLock)
		stats_ride();			/* this transaction writes anyway */
	if (mode != AccessShareLock)
	{
		PreventCommandIfReadOnly("effect");
		PreventCommandDuringRecovery("effect");
		PreventCommandIfParallelMode("effect");
		CommandCounterIncrement();
	}
	for (;;)
	{
		rel = table_open(sql_relation(table->name), mode);
		if (table->state != NULL && table->state->ready && !table->state->stale &&
			table->state->relid == RelationGetRelid(rel))
			break;
		if (table->state != NULL)
			direct_discard(table);
		direct_prepare(table, rel);
		table_close(rel, NoLock);
	}
	if (!table->state->plain)
	{
		table_close(rel, NoLock);
		return false;
	}
	table->state->rel = rel;
	table->state->mode = mode;
	return true;
}

/* End a use.  What table->value points to is gone. */
void
direct_end(DirectTable *table)
{
	DirectState *state = table->state;

	ExecClearTuple(state->row);
	ExecClearTuple(state->next);
	table_close(state->rel, NoLock);
	state->rel = NULL;
}

/* Does the row in state->row have this key? */
static bool
direct_has_key(DirectTable *table, const Datum *key)
{
	DirectState *state = table->state;

	for (int i = 0; i < table->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(state->desc, state->attnum[i] - 1);
		bool		isnull;
		Datum		value = slot_getattr(state->row, state->attnum[i], &isnull);

		if (isnull || !datum_image_eq(value, key[i], att->attbyval, att->attlen))
			return false;
	}
	return true;
}

/*
 * Look where the row found or written last stood: a session mostly comes back to
 * it.  A key has one visible version at most, so if this one is visible and has
 * the key, it is the one that the index would lead to.  Not where SSI wants to
 * know which part of the index was read.
 */
static bool
direct_look_again(DirectTable *table, const Datum *key, Snapshot snapshot)
{
	DirectState *state = table->state;

	return ItemPointerIsValid(&state->last) && !IsolationIsSerializable() &&
		ItemPointerGetBlockNumber(&state->last) < RelationGetNumberOfBlocks(state->rel) &&
		table_tuple_fetch_row_version(state->rel, &state->last, snapshot, state->row) &&
		direct_has_key(table, key);
}

/* The row version that a snapshot sees under a key, into state->row. */
static bool
direct_scan(DirectTable *table, const Datum *key, Snapshot snapshot)
{
	DirectState *state = table->state;
	Relation	index;
	IndexScanDesc scan;
	bool		found;

	if (direct_look_again(table, key, snapshot))
		return true;
	index = index_open(state->pkey, AccessShareLock);
	scan = compat_index_beginscan(state->rel, index, snapshot, table->nkeys);
	for (int i = 0; i < table->nkeys; i++)
		state->keys[i].sk_argument = key[i];
	index_rescan(scan, state->keys, table->nkeys, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, state->row);
	index_endscan(scan);
	index_close(index, NoLock);
	if (found)
		state->last = state->row->tts_tid;
	return found;
}

/* What we wait for in vain: the row is not ours to lock. */
static void
direct_lost_race(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update")));
}

/*
 * Lock the row that was found, as nodeLockRows.c does.  At READ COMMITTED its
 * latest version is followed, and the caller looks again ("again") since that
 * may have another key; above, it is an error.  false: it is gone, or (by try)
 * somebody has it locked.
 */
static bool
direct_lock(DirectTable *table, EffectLock lock, bool *again)
{
	DirectState *state = table->state;
	ItemPointerData tid = state->row->tts_tid;
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_lock(state->rel, &tid, GetActiveSnapshot(), state->row,
							  GetCurrentCommandId(false),
							  lock == LOCK_CHANGE ? LockTupleNoKeyExclusive : LockTupleExclusive,
							  lock == LOCK_SKIP ? LockWaitSkip : LockWaitBlock,
							  IsolationUsesXactSnapshot() ? 0 : TUPLE_LOCK_FLAG_FIND_LAST_VERSION,
							  &failure);
	*again = result == TM_Ok && failure.traversed;
	switch (result)
	{
		case TM_Ok:
			return true;
		case TM_WouldBlock:
		case TM_SelfModified:
			return false;
		case TM_Updated:
		case TM_Deleted:
			if (IsolationUsesXactSnapshot())
				direct_lost_race();
			*again = result == TM_Updated;
			return *again;
		default:
			elog(ERROR, "unexpected result %d of locking a row of effect.%s", (int) result, table->name);
	}
	return false;
}

/* What was found, as the caller has it: table->value, null and ours. */
static void
direct_load(DirectTable *table)
{
	DirectState *state = table->state;
	HeapTuple	tuple;

	slot_getallattrs(state->row);
	for (int i = 0; i < table->ncolumns; i++)
	{
		table->value[i] = state->row->tts_values[state->attnum[i] - 1];
		table->null[i] = state->row->tts_isnull[state->attnum[i] - 1];
	}
	tuple = ExecFetchSlotHeapTuple(state->row, false, NULL);
	table->version = state->row->tts_tid;
	table->ours = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
}

/*
 * direct_find
 *		The latest committed row of this key, or our own uncommitted one, locked
 *		or not.  Its columns are in table->value and table->null until
 *		direct_end().  false: there is none or, with LOCK_SKIP, somebody has it
 *		locked.
 */
bool
direct_find(DirectTable *table, const Datum *key, EffectLock lock)
{
	bool		found;
	bool		again;

	do
	{
		again = false;
		PushActiveSnapshot(GetLatestSnapshot());
		found = direct_scan(table, key, GetActiveSnapshot());
		if (found && lock != LOCK_NONE)
			found = direct_lock(table, lock, &again);
		PopActiveSnapshot();
	} while (again);
	if (found)
		direct_load(table);
	return found;
}

/*
 * direct_find_version
 *		The same for a row that the caller has locked and wants to change, by
 *		where it was locked: no look into the index.  false: it is not that row's
 *		latest version any more; use direct_find().
 */
bool
direct_find_version(DirectTable *table, const Datum *key, const ItemPointerData *version)
{
	DirectState *state = table->state;
	ItemPointerData tid = *version;
	TM_FailureData failure;

	/* without following versions the snapshot is not looked at */
	if (!ItemPointerIsValid(&tid) ||
		table_tuple_lock(state->rel, &tid, InvalidSnapshot, state->row, GetCurrentCommandId(false),
						 LockTupleNoKeyExclusive, LockWaitSkip, 0, &failure) != TM_Ok)
		return false;
	direct_load(table);
	return direct_has_key(table, key);
}

/* The type of a column, which an enum's value belongs to. */
Oid
direct_type(const DirectTable *table, int column)
{
	return TupleDescAttr(table->state->desc, table->state->attnum[column] - 1)->atttypid;
}

/* What writing needs, once: triggers, constraints and index expressions. */
static void
direct_prepare_writing(DirectState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);
	TriggerDesc *triggers;

	state->estate = CreateExecutorState();
	MemoryContextSwitchTo(state->estate->es_query_cxt);
	state->target = makeNode(ResultRelInfo);
	InitResultRelInfo(state->target, state->rel, 0, NULL, 0);
	state->target->ri_TrigOldSlot = MakeSingleTupleTableSlot(state->desc, table_slot_callbacks(state->rel));
	state->target->ri_TrigNewSlot = MakeSingleTupleTableSlot(state->desc, table_slot_callbacks(state->rel));
	triggers = state->target->ri_TrigDesc;
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
		fmgr_info_cxt(triggers->triggers[i].tgfoid, &state->target->ri_TrigFunctions[i],
					  state->estate->es_query_cxt);
	compat_epq_init(&state->epq, state->estate);
	ExecOpenIndices(state->target, false);
	state->nindexes = 0;
	state->indexes = palloc(Max(state->target->ri_NumIndices, 1) * sizeof(Oid));
	for (int i = 0; i < state->target->ri_NumIndices; i++)
		state->indexes[state->nindexes++] = RelationGetRelid(state->target->ri_IndexRelationDescs[i]);
	ExecCloseIndices(state->target);
	MemoryContextSwitchTo(caller);
	state->written = true;
}

/* The indexes of the target, which is open already. */
static void
direct_open_indexes(DirectState *state)
{
	for (int i = 0; i < state->target->ri_NumIndices; i++)
		state->target->ri_IndexRelationDescs[i] = index_open(state->indexes[i], RowExclusiveLock);
}

static void
direct_close_indexes(DirectState *state)
{
	for (int i = 0; i < state->target->ri_NumIndices; i++)
	{
		index_close(state->target->ri_IndexRelationDescs[i], NoLock);
		state->target->ri_IndexRelationDescs[i] = NULL;
	}
}

/*
 * A write asks nothing of a snapshot, but TOAST wants one to be there; under a
 * procedure that has just committed there may be none.
 */
static bool
direct_need_snapshot(void)
{
	if (ActiveSnapshotSet())
		return false;
	PushActiveSnapshot(GetLatestSnapshot());
	return true;
}

/* Write table->value as a new row, or as the next version of the one found. */
static void
direct_write(DirectTable *table, bool update)
{
	DirectState *state = table->state;
	MemoryContext caller = CurrentMemoryContext;
	Oid			user;
	int			security;
	bool		pushed;

	Assert(state->mode == RowExclusiveLock);
	if (!state->written)
		direct_prepare_writing(state);
	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(sql_owner(), security | SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
	memset(state->next->tts_isnull, true, state->desc->natts * sizeof(bool));
	for (int i = 0; i < table->ncolumns; i++)
	{
		state->next->tts_values[state->attnum[i] - 1] = table->value[i];
		state->next->tts_isnull[state->attnum[i] - 1] = table->null[i];
	}
	ExecStoreVirtualTuple(state->next);
	pushed = direct_need_snapshot();
	state->estate->es_snapshot = GetActiveSnapshot();
	state->estate->es_output_cid = GetCurrentCommandId(true);
	state->target->ri_RelationDesc = state->rel;
	direct_open_indexes(state);
	MemoryContextSwitchTo(GetPerTupleMemoryContext(state->estate));
	if (update)
		ExecSimpleRelationUpdate(state->target, state->estate, &state->epq, state->row, state->next);
	else
		ExecSimpleRelationInsert(state->target, state->estate, state->next);
	MemoryContextSwitchTo(caller);
	direct_close_indexes(state);
	state->last = state->next->tts_tid;
	ExecClearTuple(state->next);
	ExecClearTuple(state->target->ri_TrigOldSlot);
	ExecClearTuple(state->target->ri_TrigNewSlot);
	ResetPerTupleExprContext(state->estate);
	state->estate->es_snapshot = NULL;
	if (pushed)
		PopActiveSnapshot();
	SetUserIdAndSecContext(user, security);
	CommandCounterIncrement();
}

/*
 * direct_insert
 *		Insert table->value.  The caller has seen to it that the key is free, and
 *		holds what keeps it so; a row that plain SQL adds meanwhile is 23505.
 */
void
direct_insert(DirectTable *table)
{
	direct_write(table, false);
}

/*
 * direct_update
 *		Write table->value as the next version of the row that direct_find()
 *		found and locked.
 */
void
direct_update(DirectTable *table)
{
	direct_write(table, true);
}

/* Set one column for the next write. */
void
direct_set(DirectTable *table, int column, Datum value, bool isnull)
{
	Assert(column < table->ncolumns);
	table->value[column] = value;
	table->null[column] = isnull;
}

/* The same for a text; NULL where there is none. */
void
direct_set_text(DirectTable *table, int column, const char *value)
{
	direct_set(table, column, value ? CStringGetTextDatum(value) : (Datum) 0, value == NULL);
}
