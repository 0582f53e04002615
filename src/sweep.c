/*
 * sweep.c
 *	  Housekeeping: what pg_cron calls each minute.
 *
 * Nothing depends on it for safety.  One sweep runs at a time (EFFECT_LOCK_SWEEP
 * by try; a second one returns zeros), it does a bounded amount of work, and
 * what it costs follows what is open, not the ledger's size: open effects are
 * found from created_at above a stored mark.  The mark stays behind any
 * transaction still open, since rows may commit late, and two minutes behind
 * the clock.  What is still claimed or submitted as the mark passes is listed in
 * effect.straggler, and so is an effect that is submitted, or claimed anew, later
 * than a minute after it was created.
 *
 * A run is ended exactly as a thief does it.  Resolvers are called before any
 * ledger row is locked.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_sweep);

/* What one call does at most */
#define SWEEP_MAX_RUNS		100
#define SWEEP_MAX_EFFECTS	1000
#define SWEEP_MAX_ROWS		20000
#define SWEEP_MAX_STRETCHES	10
#define SWEEP_MAX_LOOKS		50
#define SWEEP_MAX_DELTAS	20000
#define SWEEP_MAX_SECONDS	30

typedef struct Swept
{
	int			runs;
	int			unknown;
	int			found[3];		/* by finding */
	int			bodies;
	int			keys;
} Swept;

static SqlPlan sweep_expired = {
	"SELECT job_key FROM effect.lease WHERE owner IS NOT NULL"
	" AND lease_until OPERATOR(pg_catalog.<=) $1 LIMIT $2",
	2, {TIMESTAMPTZOID, INT4OID}
};

static SqlPlan sweep_read_mark = {
	"SELECT swept_to FROM effect.sweep_state WHERE only_row",
	0
};

static SqlPlan sweep_write_mark = {
	"INSERT INTO effect.sweep_state (swept_to, swept_at) VALUES ($1, $2)"
	" ON CONFLICT (only_row) DO UPDATE SET swept_to = $1, swept_at = $2",
	2, {TIMESTAMPTZOID, TIMESTAMPTZOID}
};

/*
 * Rows may become visible with a created_at from before their commit: that of a
 * transaction which has an id by now, or a minute older where it only submits.
 */
static SqlPlan sweep_horizon = {
	"SELECT LEAST($1 OPERATOR(pg_catalog.-) pg_catalog.make_interval(mins => 2),"
	" (SELECT pg_catalog.min(xact_start) OPERATOR(pg_catalog.-) pg_catalog.make_interval(mins => 1)"
	"   FROM pg_catalog.pg_stat_activity"
	"   WHERE datid OPERATOR(pg_catalog.=) $2 AND backend_xid IS NOT NULL),"
	" CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts"
	"   WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database())"
	" THEN '-infinity'::pg_catalog.timestamptz END)",
	2, {TIMESTAMPTZOID, OIDOID}
};

/* The next stretch of the ledger: what is claimed or submitted in it, and where it ends. */
static SqlPlan sweep_stretch = {
	"WITH stretch AS MATERIALIZED (SELECT effect_key, state, created_at FROM effect.ledger"
	"   WHERE created_at OPERATOR(pg_catalog.>=) $1 ORDER BY created_at LIMIT $2)"
	" SELECT NULL::pg_catalog.uuid, pg_catalog.max(created_at), pg_catalog.count(*) FROM stretch"
	" UNION ALL (SELECT effect_key, created_at, 0 FROM stretch"
	"   WHERE state OPERATOR(pg_catalog.<) 'unknown'::effect.effect_state"
	"   ORDER BY created_at LIMIT $3)",
	3, {TIMESTAMPTZOID, INT4OID, INT4OID}
};

/* More rows of one instant than a stretch holds (a bulk load): all of them. */
static SqlPlan sweep_instant = {
	"SELECT effect_key FROM effect.ledger WHERE created_at OPERATOR(pg_catalog.=) $1"
	" AND state OPERATOR(pg_catalog.<) 'unknown'::effect.effect_state LIMIT $2",
	2, {TIMESTAMPTZOID, INT4OID}
};

/* Those of the list that need a hand: a live attempt and a claim are passed over. */
static SqlPlan sweep_stragglers = {
	"SELECT s.effect_key FROM effect.straggler AS s"
	" LEFT JOIN effect.ledger AS l ON l.effect_key OPERATOR(pg_catalog.=) s.effect_key"
	" LEFT JOIN effect.lease AS j ON j.job_key OPERATOR(pg_catalog.=) l.job_key"
	" WHERE NOT COALESCE(l.state OPERATOR(pg_catalog.=) 'claimed'::effect.effect_state"
	"   OR l.state OPERATOR(pg_catalog.=) 'submitted'::effect.effect_state"
	"   AND CASE WHEN l.job_key IS NULL THEN l.busy_until OPERATOR(pg_catalog.>) $2"
	"     AND l.updated_at OPERATOR(pg_catalog.>=) (SELECT moved_at FROM effect.cluster WHERE only_row)"
	"   ELSE j.owner IS NOT NULL AND j.fencing_token OPERATOR(pg_catalog.=) l.fencing_token END, false)"
	" LIMIT $1",
	2, {INT4OID, TIMESTAMPTZOID}
};

static SqlPlan sweep_drop_straggler = {
	"DELETE FROM effect.straggler WHERE effect_key OPERATOR(pg_catalog.=) $1",
	1, {UUIDOID}
};

/* End the runs whose leases have expired, as thieves would. */
static void
sweep_runs(Swept *swept)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	char	  **jobs;
	int			n;

	sql_open(&scope);
	sql_arg_time(&args, GetCurrentTimestamp());
	sql_arg(&args, Int32GetDatum(SWEEP_MAX_RUNS), false);
	(void) sql_read(&sweep_expired, &args);
	jobs = sql_rows_text(&scope, &n);
	sql_close(&scope);
	for (int i = 0; i < n; i++)
	{
		int			effects = lease_expire(jobs[i]);

		if (effects < 0)
			continue;
		swept->runs++;
		swept->unknown += effects;
	}
}

/* May it still be submitted, or go unknown? */
static bool
sweep_is_open(const Effect *effect)
{
	return effect->state == STATE_CLAIMED || effect->state == STATE_SUBMITTED;
}

/* Write down what the reading rule says; is the effect still claimed or submitted? */
static bool
sweep_effect(const pg_uuid_t *key, Swept *swept)
{
	Effect		effect;

	if (!ledger_read(key, LOCK_NONE, &effect) || !sweep_is_open(&effect))
		return false;
	if (!ledger_is_unknown(&effect) || !ledger_read(key, LOCK_SKIP, &effect))
		return true;
	if (effect.state != STATE_SUBMITTED || !ledger_is_unknown(&effect))
		return sweep_is_open(&effect);
	ledger_set_unknown(&effect, "its holder was superseded or its time was up", NULL);
	swept->unknown++;
	return false;
}

static TimestampTz
sweep_mark(void)
{
	SqlScope	scope;
	SqlArgs		none = {0};
	TimestampTz mark = DT_NOBEGIN;

	sql_open(&scope);
	if (sql_read(&sweep_read_mark, &none) > 0)
		mark = sql_column_time(1);
	sql_close(&scope);
	return mark;
}

/* How far the mark may go: behind every row that can still become visible. */
static TimestampTz
sweep_limit(void)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	TimestampTz limit;

	sql_open(&scope);
	sql_arg_time(&args, GetCurrentTimestamp());
	sql_arg(&args, ObjectIdGetDatum(MyDatabaseId), false);
	(void) sql_read(&sweep_horizon, &args);
	limit = sql_column_time(1);
	sql_close(&scope);
	return limit;
}

static void
sweep_set_mark(TimestampTz mark)
{
	SqlScope	scope;
	SqlArgs		args = {0};

	sql_open(&scope);
	sql_arg(&args, TimestampTzGetDatum(mark), false);
	sql_arg_time(&args, GetCurrentTimestamp());
	(void) sql_write(&sweep_write_mark, &args);
	sql_close(&scope);
}

/*
 * List an effect that is still claimed or submitted, so that the mark can pass it; false:
 * somebody has its row locked, and may be listing it too.
 */
static bool
sweep_list(const pg_uuid_t *key)
{
	Effect		effect;

	if (!ledger_read(key, LOCK_SKIP, &effect))
		return false;
	if (sweep_is_open(&effect))
		ledger_list(key);
	return true;
}

/* Get past an instant that fills a stretch; false: it cannot be passed yet. */
static bool
sweep_past(TimestampTz instant, Swept *swept)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	pg_uuid_t  *keys;
	int			n;
	bool		past;

	sql_open(&scope);
	sql_arg_time(&args, instant);
	sql_arg(&args, Int32GetDatum(SWEEP_MAX_EFFECTS), false);
	(void) sql_read(&sweep_instant, &args);
	keys = sql_rows_uuid(&scope, 0, &n);
	sql_close(&scope);
	past = n < SWEEP_MAX_EFFECTS;
	for (int i = 0; i < n; i++)
		past &= !sweep_effect(&keys[i], swept) || sweep_list(&keys[i]);
	return past;
}

/*
 * One stretch of the ledger.  What is still open in it is listed where the
 * mark will pass it, so that one long attempt does not hide those behind it.
 * Where the stretch ends; "more": there is one behind it; "limit": the mark may
 * not pass it.
 */
static TimestampTz
sweep_stretch_from(TimestampTz from, TimestampTz *limit, bool *more, Swept *swept)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	TimestampTz next;
	pg_uuid_t  *keys;
	TimestampTz *created;
	int			n;

	sql_open(&scope);
	sql_arg(&args, TimestampTzGetDatum(from), false);
	sql_arg(&args, Int32GetDatum(SWEEP_MAX_ROWS), false);
	sql_arg(&args, Int32GetDatum(SWEEP_MAX_EFFECTS), false);
	(void) sql_read(&sweep_stretch, &args);
	next = sql_column_time(2);
	*more = sql_column_int(3) == SWEEP_MAX_ROWS;
	keys = sql_rows_uuid(&scope, 1, &n);
	created = MemoryContextAlloc(scope.caller, (n + 1) * sizeof(TimestampTz));
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		created[i] = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[i + 1],
													   SPI_tuptable->tupdesc, 2, &isnull));
	}
	sql_close(&scope);
	if (next == 0)
		next = *limit;			/* nothing from the mark on */
	if (n == SWEEP_MAX_EFFECTS)
	{
		next = created[n - 1];	/* more may be open behind these */
		*more = true;
	}
	for (int i = 0; i < n; i++)
		if (sweep_effect(&keys[i], swept) && created[i] < Min(next, *limit) &&
			!sweep_list(&keys[i]))
			*limit = created[i];
	if (*more && next == from)
	{
		*more = sweep_past(from, swept);
		next = *more ? from + 1 : from;
	}
	return next;
}

/* The ledger from the mark on, as far as one call goes. */
static void
sweep_ledger(Swept *swept)
{
	TimestampTz limit = sweep_limit();
	TimestampTz mark = sweep_mark();
	TimestampTz at = mark;
	bool		more = true;

	for (int i = 0; i < SWEEP_MAX_STRETCHES && more; i++)
		at = sweep_stretch_from(at, &limit, &more, swept);
	sweep_set_mark(Max(Min(at, limit), mark));
}

/* Nobody is submitting it at this moment: we have its row, or it has none. */
static bool
sweep_may_strike(const pg_uuid_t *key)
{
	Effect		effect;

	if (ledger_read(key, LOCK_SKIP, &effect))
		return !sweep_is_open(&effect);
	return !ledger_read(key, LOCK_NONE, &effect);
}

/* Those that were submitted behind the mark. */
static void
sweep_listed(Swept *swept)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	pg_uuid_t  *keys;
	int			n;

	sql_open(&scope);
	sql_arg(&args, Int32GetDatum(SWEEP_MAX_EFFECTS), false);
	sql_arg_time(&args, GetCurrentTimestamp());
	(void) sql_read(&sweep_stragglers, &args);
	keys = sql_rows_uuid(&scope, 0, &n);
	sql_close(&scope);
	for (int i = 0; i < n; i++)
	{
		SqlArgs		key = {0};

		if (sweep_effect(&keys[i], swept) || !sweep_may_strike(&keys[i]))
			continue;
		sql_open(&scope);
		sql_arg_uuid(&key, &keys[i]);
		(void) sql_write(&sweep_drop_straggler, &key);
		sql_close(&scope);
	}
}

/*
 * effect.sweep() -> one row of what it did
 *		Errors: 25006; a cancel or a timeout passes through.
 */
Datum
effect_sweep(PG_FUNCTION_ARGS)
{
	Swept		swept = {0};
	TupleDesc	desc;
	Datum		values[7];
	bool		nulls[7] = {false};

	begin_writing("effect.sweep()");
	if (lock_advisory(EFFECT_LOCK_SWEEP, 0, ExclusiveLock, false))
	{
		resolver_sweep(SWEEP_MAX_LOOKS, GetCurrentTimestamp() + SWEEP_MAX_SECONDS * USECS_PER_SEC,
					   swept.found);
		sweep_runs(&swept);
		sweep_listed(&swept);
		sweep_ledger(&swept);
		retention_prune(&swept.bodies, &swept.keys);
		stats_fold(SWEEP_MAX_DELTAS);
	}
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = Int32GetDatum(swept.runs);
	values[1] = Int32GetDatum(swept.unknown);
	for (int i = 0; i < 3; i++)
		values[2 + i] = Int32GetDatum(swept.found[i]);
	values[5] = Int32GetDatum(swept.bodies);
	values[6] = Int32GetDatum(swept.keys);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
