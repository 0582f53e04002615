/*
 * stats.c
 *	  Counters: what callers were told, and what was done, per job and action.
 *
 * Counted in this backend's memory, so that a duplicate costs no write and a
 * rollback takes nothing back.  Two kinds of things are counted: an answer (a
 * duplicate, a fenced write) happened the moment it was given; a deed (a grant,
 * a go) only if its transaction commits.
 *
 * What is counted is written down as rows of effect.counter_delta, which nobody
 * else writes, so no row is hot; sweep folds them.  That is done inside our own
 * calls only: a write in a pre-commit callback would run inside VACUUM and break
 * READ ONLY and PREPARE.  With a call that writes anyway, once a second; else,
 * once effect.stats_flush_interval has passed, with any call outside READ ONLY.
 * The table is locked by try: numbers are worth no wait.
 *
 * A number that is written but not committed, and a deed, stands in a list with
 * its subtransaction; the end of that decides.  After PREPARE it is in doubt
 * until the prepared transaction has ended.  Everything lives in a memory
 * context of its own to the end of the backend, which writes what is left.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_open_keys);

/* Names counted apart; beyond that many in one backend they share the name '' */
#define STATS_MAX_NAMES		1024

/* A call that writes anyway takes the numbers along at most this often */
#define STATS_RIDE_EVERY	USECS_PER_SEC

static const char *const stats_labels[] = {
	"granted", "held", "coalesced", "queued", "saturated", "already_ran", "cooling_down", "paused",
	"quarantined", "overlapped", "stolen", "expired", "revoked", "finished", "failed", "renewed",
	"fenced", "reserved", "go", "applied", "completed", "duplicates", "closed", "busy", "blocked",
	"unapproved", "mismatch", "retracted", "lost", "found_happened", "found_absent", "resent",
	"late_answers", "doubles", "same_transaction"
};

StaticAssertDecl(lengthof(stats_labels) == COUNTER_COUNT, "a label for each counter");

/* The counters of one job or action, not yet written down */
typedef struct Tally
{
	char		key[EFFECT_MAX_KEY + 2];	/* 'j' or 'a', then the name */
	int64		n[COUNTER_COUNT];
} Tally;

/* A number that the end of a (sub)transaction decides about */
typedef struct Pending
{
	struct Pending *next;
	Tally	   *tally;
	Counter		counter;
	int64		n;
	bool		is_deed;		/* counts if it commits; else it counts again if not */
	SubTransactionId in;
	TransactionId xid;			/* of a prepared transaction */
} Pending;

static MemoryContext stats_context = NULL;
static HTAB *stats_tallies = NULL;
static Pending *stats_pending = NULL;	/* of the current transaction */
static Pending *stats_doubts = NULL;	/* of prepared ones */
static TransactionId stats_preparing = InvalidTransactionId;
static bool stats_answers = false;	/* something was answered since the last flush */
static bool stats_dirty = false;	/* some tally is not zero */
static bool stats_flushing = false;
static TimestampTz stats_flushed_at = 0;	/* or when counting began */
static TimestampTz stats_rode_at = 0;

static SqlPlan stats_insert = {
	"INSERT INTO effect.counter_delta (at, kind, name, counter, n)"
	" SELECT $1, u.kind, u.name, u.counter, u.n FROM ROWS FROM (pg_catalog.unnest($2), pg_catalog.unnest($3),"
	" pg_catalog.unnest($4), pg_catalog.unnest($5)) AS u(kind, name, counter, n)",
	5, {TIMESTAMPTZOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID}
};

static SqlPlan stats_fold_deltas = {
	"WITH gone AS (DELETE FROM effect.counter_delta WHERE id OPERATOR(pg_catalog.=) ANY (ARRAY("
	"   SELECT id FROM effect.counter_delta LIMIT $1 FOR UPDATE SKIP LOCKED))"
	"   RETURNING kind, name, counter, at, n)"
	" INSERT INTO effect.counter AS c (kind, name, counter, hour, n)"
	" SELECT kind, name, counter, pg_catalog.date_trunc('hour', at, 'UTC'), pg_catalog.sum(n)"
	" FROM gone GROUP BY 1, 2, 3, 4 ON CONFLICT (kind, name, counter, hour)"
	" DO UPDATE SET n = c.n OPERATOR(pg_catalog.+) EXCLUDED.n",
	1, {INT4OID}
};

static SqlPlan stats_fold_hours = {
	"WITH gone AS (DELETE FROM effect.counter WHERE hour OPERATOR(pg_catalog.<) $1"
	"   AND hour OPERATOR(pg_catalog.>) '-infinity'::pg_catalog.timestamptz"
	"   RETURNING kind, name, counter, n)"
	" INSERT INTO effect.counter AS c (kind, name, counter, hour, n)"
	" SELECT kind, name, counter, '-infinity'::pg_catalog.timestamptz, pg_catalog.sum(n) FROM gone GROUP BY 1, 2, 3"
	" ON CONFLICT (kind, name, counter, hour) DO UPDATE SET n = c.n OPERATOR(pg_catalog.+) EXCLUDED.n",
	1, {TIMESTAMPTZOID}
};

static SqlPlan stats_open_keys = {
	"SELECT effect_key FROM effect.ledger WHERE created_at OPERATOR(pg_catalog.>=)"
	" COALESCE((SELECT swept_to FROM effect.sweep_state WHERE only_row), '-infinity'::pg_catalog.timestamptz)"
	" AND state OPERATOR(pg_catalog.<>) 'done'::effect.effect_state"
	" UNION SELECT effect_key FROM effect.straggler UNION SELECT effect_key FROM effect.unknown",
	0
};

/* ---- what the end of a transaction decides ---- */

static void
stats_add(Tally *tally, Counter counter, int64 n)
{
	tally->n[counter] += n;
	stats_dirty = true;
}

/* Take one off its list: it happened, or it did not. */
static void
stats_decide(Pending **link, bool committed)
{
	Pending    *pending = *link;

	if (pending->is_deed == committed)
		stats_add(pending->tally, pending->counter, pending->n);
	*link = pending->next;
	pfree(pending);
}

static void
stats_decide_all(bool committed)
{
	while (stats_pending != NULL)
		stats_decide(&stats_pending, committed);
}

/* PREPARE: all of it waits for the end of the prepared transaction. */
static void
stats_doubt_all(void)
{
	while (stats_pending != NULL)
	{
		Pending    *pending = stats_pending;

		stats_pending = pending->next;
		pending->xid = stats_preparing;
		pending->next = stats_doubts;
		stats_doubts = pending;
	}
}

/* Prepared transactions that have ended meanwhile. */
static void
stats_settle_doubts(void)
{
	Pending   **link = &stats_doubts;

	while (*link != NULL)
	{
		TransactionId xid = (*link)->xid;

		if (TransactionIdIsValid(xid) && TransactionIdIsInProgress(xid))
			link = &(*link)->next;
		else
			stats_decide(link, !TransactionIdIsValid(xid) || TransactionIdDidCommit(xid));
	}
}

/* Nothing here may fail: a transaction is ending. */
static void
stats_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			stats_preparing = GetTopTransactionIdIfAny();
			break;
		case XACT_EVENT_PREPARE:
			stats_doubt_all();
			break;
		case XACT_EVENT_COMMIT:
			stats_decide_all(true);
			break;
		case XACT_EVENT_ABORT:
			stats_flushing = false;
			stats_decide_all(false);
			break;
		default:
			break;
	}
}

/* The pending number that one more of these adds to; NULL: there is none yet. */
static Pending *
stats_find(Tally *tally, Counter counter, bool is_deed, SubTransactionId in)
{
	Pending    *pending = stats_pending;

	while (pending != NULL && !(pending->tally == tally && pending->counter == counter &&
								pending->is_deed == is_deed && pending->in == in))
		pending = pending->next;
	return pending;
}

/* A subtransaction's number is its parent's from now on. */
static void
stats_hand_up(Pending **link, SubTransactionId parent)
{
	Pending    *mine = *link;
	Pending    *its = stats_find(mine->tally, mine->counter, mine->is_deed, parent);

	if (its == NULL)
	{
		mine->in = parent;
		return;
	}
	its->n += mine->n;
	*link = mine->next;
	pfree(mine);
}

static void
stats_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	Pending   **link = &stats_pending;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		stats_flushing = false;
	while (*link != NULL)
	{
		Pending    *pending = *link;

		if (pending->in == mine && event == SUBXACT_EVENT_ABORT_SUB)
			stats_decide(link, false);
		else if (pending->in == mine)
			stats_hand_up(link, parent);
		if (*link == pending)
			link = &pending->next;
	}
}

/* ---- counting ---- */

static void stats_at_exit(int code, Datum arg);

/* First use in this backend. */
static void
stats_start(void)
{
	HASHCTL		control = {.keysize = EFFECT_MAX_KEY + 2, .entrysize = sizeof(Tally)};

	stats_context = AllocSetContextCreate(TopMemoryContext, "effect counters", ALLOCSET_SMALL_SIZES);
	control.hcxt = stats_context;
	stats_tallies = hash_create("effect counters", 16, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	RegisterXactCallback(stats_xact_callback, NULL);
	RegisterSubXactCallback(stats_subxact_callback, NULL);
	before_shmem_exit(stats_at_exit, (Datum) 0);
	stats_flushed_at = GetCurrentTimestamp();
}

/* The tally of this name; those beyond the limit share one. */
static Tally *
stats_tally(StatsKind kind, const char *name)
{
	char		key[EFFECT_MAX_KEY + 2];
	Tally	   *tally;
	bool		found;

	if (stats_tallies == NULL)
		stats_start();
	key[0] = kind == STATS_JOB ? 'j' : 'a';
	strlcpy(key + 1, name, sizeof(key) - 1);
	tally = hash_search(stats_tallies, key, HASH_FIND, NULL);
	if (tally != NULL)
		return tally;
	if (hash_get_num_entries(stats_tallies) >= STATS_MAX_NAMES)
		key[1] = '\0';
	tally = hash_search(stats_tallies, key, HASH_ENTER, &found);
	if (!found)
		memset(tally->n, 0, sizeof(tally->n));
	return tally;
}

/*
 * stats_count
 *		An answer was given: it counts, whatever becomes of the transaction.
 */
void
stats_count(StatsKind kind, const char *name, Counter counter)
{
	stats_add(stats_tally(kind, name), counter, 1);
	stats_answers = true;
}

static void
stats_wait(Tally *tally, Counter counter, int64 n, bool is_deed)
{
	SubTransactionId in = GetCurrentSubTransactionId();
	Pending    *pending = stats_find(tally, counter, is_deed, in);

	if (pending != NULL)
	{
		pending->n += n;
		return;
	}
	pending = MemoryContextAlloc(stats_context, sizeof(Pending));
	*pending = (Pending) {.next = stats_pending, .tally = tally, .counter = counter, .n = n,
		.is_deed = is_deed, .in = in};
	stats_pending = pending;
}

/* Something was done: it counts if the transaction commits. */
void
stats_deed(StatsKind kind, const char *name, Counter counter)
{
	stats_deeds(kind, name, counter, 1);
}

void
stats_deeds(StatsKind kind, const char *name, Counter counter, int64 n)
{
	stats_wait(stats_tally(kind, name), counter, n, true);
}

/* What a caller of the ledger was told; the deeds are counted where they are done. */
void
stats_verdict(const char *action, EffectVerdict verdict)
{
	switch (verdict)
	{
		case VERDICT_DONE:
			stats_count(STATS_ACTION, action, COUNT_DUPLICATES);
			break;
		case VERDICT_CLOSED:
			stats_count(STATS_ACTION, action, COUNT_CLOSED);
			break;
		case VERDICT_BUSY:
			stats_count(STATS_ACTION, action, COUNT_BUSY);
			break;
		case VERDICT_UNKNOWN:
			stats_count(STATS_ACTION, action, COUNT_BLOCKED);
			break;
		case VERDICT_FENCED:
			stats_count(STATS_ACTION, action, COUNT_FENCED);
			break;
		case VERDICT_UNAPPROVED:
			stats_count(STATS_ACTION, action, COUNT_UNAPPROVED);
			break;
		case VERDICT_MISMATCH:
			stats_count(STATS_ACTION, action, COUNT_MISMATCH);
			break;
		case VERDICT_QUARANTINED:
			stats_count(STATS_ACTION, action, COUNT_QUARANTINED);
			break;
		case VERDICT_RESERVED:
		case VERDICT_GO:
		case VERDICT_GO_AFTER_COMMIT:
		case VERDICT_APPLY:
			break;
	}
}

/* A superseded token was refused: counted, and logged at a level of its own. */
void
stats_fenced(const char *job_key, int64 token, const char *what)
{
	stats_count(STATS_JOB, job_key, COUNT_FENCED);
	if (effect_fenced_log_level > 0)
		ereport(effect_fenced_log_level,
				(errmsg("fenced: %s under token " INT64_FORMAT " of job \"%s\", which is superseded",
						what, token, job_key)));
}

/* ---- writing down ---- */

/* The tallies that are not zero, as four arrays; how many there are. */
static int
stats_collect(Datum *kinds, Datum *names, Datum *counters, Datum *ns, int max)
{
	HASH_SEQ_STATUS scan;
	Tally	   *tally;
	int			n = 0;

	hash_seq_init(&scan, stats_tallies);
	while ((tally = hash_seq_search(&scan)) != NULL)
		for (int i = 0; i < COUNTER_COUNT; i++)
		{
			if (tally->n[i] == 0)
				continue;
			if (kinds != NULL)
			{
				Assert(n < max);
				kinds[n] = CStringGetTextDatum(tally->key[0] == 'j' ? "job" : "action");
				names[n] = CStringGetTextDatum(tally->key + 1);
				counters[n] = CStringGetTextDatum(stats_labels[i]);
				ns[n] = Int64GetDatum(tally->n[i]);
			}
			n++;
		}
	return n;
}

/* All of it is written by this transaction, and counts again if that fails. */
static void
stats_zero(void)
{
	HASH_SEQ_STATUS scan;
	Tally	   *tally;

	hash_seq_init(&scan, stats_tallies);
	while ((tally = hash_seq_search(&scan)) != NULL)
		for (int i = 0; i < COUNTER_COUNT; i++)
		{
			if (tally->n[i] == 0)
				continue;
			stats_wait(tally, i, tally->n[i], false);
			tally->n[i] = 0;
		}
	stats_dirty = false;
}

static void
stats_write(void)
{
	int			n = stats_collect(NULL, NULL, NULL, NULL, 0);
	Datum	   *values = palloc(4 * n * sizeof(Datum));
	SqlScope	scope;
	SqlArgs		args = {0};

	(void) stats_collect(values, values + n, values + 2 * n, values + 3 * n, n);
	sql_open(&scope);
	sql_arg_time(&args, GetCurrentTimestamp());
	for (int i = 0; i < 3; i++)
		sql_arg(&args, PointerGetDatum(construct_array(values + i * n, n, TEXTOID, -1, false, TYPALIGN_INT)),
				false);
	sql_arg(&args, PointerGetDatum(construct_array(values + 3 * n, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
												   TYPALIGN_DOUBLE)), false);
	(void) sql_write(&stats_insert, &args);
	sql_close(&scope);
	stats_zero();
}

/*
 * stats_forget
 *		A backend that has met many names forgets those that are written down.
 *		Only while nothing points at them.
 */
static void
stats_forget(void)
{
	HASH_SEQ_STATUS scan;
	Tally	   *tally;

	if (stats_pending != NULL || stats_doubts != NULL ||
		hash_get_num_entries(stats_tallies) < STATS_MAX_NAMES / 2)
		return;
	hash_seq_init(&scan, stats_tallies);
	while ((tally = hash_seq_search(&scan)) != NULL)
	{
		static const int64 none[COUNTER_COUNT];

		if (memcmp(tally->n, none, sizeof(none)) == 0)
			(void) hash_search(stats_tallies, tally->key, HASH_REMOVE, NULL);
	}
}

/* Write down what was counted, unless the table is locked. */
static void
stats_flush(void)
{
	stats_settle_doubts();
	if (!stats_dirty || !ConditionalLockRelationOid(sql_relation("counter_delta"), RowExclusiveLock))
		return;
	stats_flushing = true;		/* our own write is no occasion for another */
	stats_write();
	stats_flushing = false;
	stats_answers = false;
	stats_flushed_at = stats_rode_at = GetCurrentTimestamp();
}

/* A statement of ours is about to write: take the answers along, once a second. */
void
stats_ride(void)
{
	if (!stats_answers || stats_flushing || XactReadOnly)
		return;
	if (GetCurrentTimestamp() - stats_rode_at >= STATS_RIDE_EVERY)
		stats_flush();
}

/* A call outside of READ ONLY: write down what has waited for an interval. */
void
stats_flush_if_due(void)
{
	if (stats_tallies == NULL || (!stats_dirty && stats_doubts == NULL))
		return;
	stats_forget();
	if (hash_get_num_entries(stats_tallies) >= STATS_MAX_NAMES ||
		GetCurrentTimestamp() - stats_flushed_at >= effect_stats_flush_interval * USECS_PER_SEC)
		stats_flush();
}

/*
 * The backend ends.  A transaction of its own, that waits for nothing: not for a
 * lock, not for the disk, not for a standby.  Where it cannot have that, the
 * numbers of the last interval are lost.
 */
static void
stats_at_exit(int code, Datum arg)
{
	Oid			schema;

	if (RecoveryInProgress())
		return;
	AbortOutOfAnyTransaction();
	if (!stats_dirty && stats_doubts == NULL)
		return;
	StartTransactionCommand();
	XactReadOnly = false;
	XactIsoLevel = XACT_READ_COMMITTED;
	synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
	PushActiveSnapshot(GetTransactionSnapshot());
	schema = get_namespace_oid("effect", true);
	if (OidIsValid(schema) && OidIsValid(get_relname_relid("counter_delta", schema)))
		stats_flush();
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* Fold what sessions have written down; called by sweep, alone. */
void
stats_fold(int limit)
{
	SqlScope	scope;
	SqlArgs		deltas = {0};
	SqlArgs		hours = {0};

	sql_open(&scope);
	sql_arg(&deltas, Int32GetDatum(limit), false);
	(void) sql_write(&stats_fold_deltas, &deltas);
	sql_arg_time(&hours, GetCurrentTimestamp() - 2 * USECS_PER_DAY);
	(void) sql_write(&stats_fold_hours, &hours);
	sql_close(&scope);
}

/*
 * effect.open_keys() -> setof uuid
 *		Read with plans of our own, which no planner turns into a scan of the
 *		ledger.  Also on a standby.
 */
Datum
effect_open_keys(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	SqlScope	scope;
	SqlArgs		none = {0};
	pg_uuid_t  *keys;
	int			n;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	sql_open(&scope);
	(void) sql_read(&stats_open_keys, &none);
	keys = sql_rows_uuid(&scope, 0, &n);
	sql_close(&scope);
	for (int i = 0; i < n; i++)
	{
		Datum		value = UUIDPGetDatum(&keys[i]);
		bool		isnull = false;

		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}
