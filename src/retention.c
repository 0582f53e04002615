/*
 * retention.c
 *	  Forgetting what may be forgotten: bodies first, then keys, per action.
 *
 * Only for actions that ask for it; keys are kept for ever otherwise.  Never an
 * effect that has not ended (except an unknown one whose action says drop).  A
 * pass walks the ledger by created_at, a stretch a call, and begins again a day
 * later, so that what ended late is found too.  effect.retention says how far a
 * pass has come.  The guard on DELETE is told when it is us.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "effect.h"

#define RETENTION_STRETCH	5000
#define RETENTION_EVERY		USECS_PER_DAY
#define RETENTION_RUNS		1000

bool		retention_deletes = false;	/* the guard of effect.ledger asks */

static SqlPlan retention_tasks = {
	"SELECT a.action, w.what, w.keep, COALESCE(r.pruned_to, '-infinity'::pg_catalog.timestamptz),"
	" COALESCE(r.pass_began, $1)"
	" FROM effect.action AS a CROSS JOIN LATERAL"
	" (VALUES ('bodies', a.keep_body_for), ('keys', a.keep_key_for)) AS w(what, keep)"
	" LEFT JOIN effect.retention AS r ON r.action OPERATOR(pg_catalog.=) a.action"
	" AND r.what OPERATOR(pg_catalog.=) w.what"
	" WHERE w.keep IS NOT NULL AND (r.action IS NULL"
	" OR r.pruned_to OPERATOR(pg_catalog.<) ($1 OPERATOR(pg_catalog.-) w.keep)"
	" OR r.pass_began OPERATOR(pg_catalog.<) ($1 OPERATOR(pg_catalog.-) pg_catalog.make_interval(days => 1)))"
	" ORDER BY w.what COLLATE pg_catalog.\"C\", a.action",
	1, {TIMESTAMPTZOID}
};

#define RETENTION_STRETCH_SQL \
	"WITH stretch AS MATERIALIZED (SELECT effect_key, action, state, updated_at, created_at" \
	"   FROM effect.ledger WHERE created_at OPERATOR(pg_catalog.>=) $2" \
	"   AND created_at OPERATOR(pg_catalog.<) $3 ORDER BY created_at LIMIT $4)," \
	" old AS MATERIALIZED (SELECT l.effect_key FROM stretch AS s JOIN effect.ledger AS l" \
	"   ON l.effect_key OPERATOR(pg_catalog.=) s.effect_key" \
	"   WHERE s.action OPERATOR(pg_catalog.=) $1 AND l.updated_at OPERATOR(pg_catalog.<) $3" \
	"   AND (l.state OPERATOR(pg_catalog.=) 'done'::effect.effect_state OR ($5 AND" \
	"     l.state OPERATOR(pg_catalog.=) 'unknown'::effect.effect_state))" \
	"   FOR UPDATE OF l SKIP LOCKED),"

static SqlPlan retention_bodies = {
	RETENTION_STRETCH_SQL
	" gone AS (UPDATE effect.ledger AS l SET inputs = NULL, response = NULL, terms_shown = NULL"
	"   FROM old AS o WHERE l.effect_key OPERATOR(pg_catalog.=) o.effect_key"
	"   AND (l.inputs IS NOT NULL OR l.response IS NOT NULL OR l.terms_shown IS NOT NULL)"
	"   AND l.state OPERATOR(pg_catalog.=) 'done'::effect.effect_state RETURNING 1)"
	" SELECT (SELECT pg_catalog.count(*) FROM gone), pg_catalog.max(created_at), pg_catalog.count(*)"
	" FROM stretch",
	5, {TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID, BOOLOID}
};

static SqlPlan retention_keys = {
	RETENTION_STRETCH_SQL
	" gone AS (DELETE FROM effect.ledger AS l USING old AS o"
	"   WHERE l.effect_key OPERATOR(pg_catalog.=) o.effect_key RETURNING l.effect_key),"
	" approvals AS (DELETE FROM effect.approval AS p USING gone AS g"
	"   WHERE p.effect_key OPERATOR(pg_catalog.=) g.effect_key),"
	" doubts AS (DELETE FROM effect.unknown AS u USING gone AS g"
	"   WHERE u.effect_key OPERATOR(pg_catalog.=) g.effect_key)"
	" SELECT (SELECT pg_catalog.count(*) FROM gone), pg_catalog.max(created_at), pg_catalog.count(*)"
	" FROM stretch",
	5, {TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID, BOOLOID}
};

static SqlPlan retention_note = {
	"INSERT INTO effect.retention AS r (action, what, pruned_to, pass_began, pruned)"
	" VALUES ($1, $2, $3, $4, $5) ON CONFLICT (action, what) DO UPDATE"
	" SET pruned_to = $3, pass_began = $4, pruned = r.pruned OPERATOR(pg_catalog.+) $5",
	5, {TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID}
};

/* Oldest runs first, a bounded number a job and call; never a running one. */
static SqlPlan retention_runs = {
	"DELETE FROM effect.run AS r USING effect.job AS j CROSS JOIN LATERAL"
	" (SELECT o.fencing_token FROM effect.run AS o WHERE o.job_key OPERATOR(pg_catalog.=) j.job_key"
	"   ORDER BY o.fencing_token LIMIT $2) AS old"
	" WHERE j.keep_runs_for IS NOT NULL AND r.job_key OPERATOR(pg_catalog.=) j.job_key"
	" AND r.fencing_token OPERATOR(pg_catalog.=) old.fencing_token"
	" AND r.outcome OPERATOR(pg_catalog.<>) 'running'::effect.run_outcome"
	" AND r.ended_at OPERATOR(pg_catalog.<) ($1 OPERATOR(pg_catalog.-) j.keep_runs_for)",
	2, {TIMESTAMPTZOID, INT4OID}
};

/* One thing to forget: of which action, what, for how long it is kept */
typedef struct Task
{
	char	   *action;
	bool		keys;
	TimestampTz before;
	TimestampTz from;
	TimestampTz began;
} Task;

static Task *
retention_read_tasks(TimestampTz now, int *n)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	Task	   *tasks;

	sql_open(&scope);
	sql_arg_time(&args, now);
	*n = (int) sql_read(&retention_tasks, &args);
	tasks = MemoryContextAlloc(scope.caller, (*n + 1) * sizeof(Task));
	for (int i = 0; i < *n; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;
		Datum		keep = SPI_getbinval(row, desc, 3, &isnull);

		tasks[i].action = MemoryContextStrdup(scope.caller, SPI_getvalue(row, desc, 1));
		tasks[i].keys = strcmp(SPI_getvalue(row, desc, 2), "keys") == 0;
		tasks[i].before = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_mi_interval,
																  TimestampTzGetDatum(now), keep));
		tasks[i].from = DatumGetTimestampTz(SPI_getbinval(row, desc, 4, &isnull));
		tasks[i].began = DatumGetTimestampTz(SPI_getbinval(row, desc, 5, &isnull));
	}
	sql_close(&scope);
	return tasks;
}

/* One stretch of one task; how much was forgotten. */
static int
retention_run(Task *task, bool drops, TimestampTz now)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	SqlArgs		note = {0};
	Datum		value;
	int64		pruned;
	TimestampTz reached;

	/* the pass has come to what was old enough when it began, a day ago or more */
	if (now - task->began >= RETENTION_EVERY && task->from >= task->before - (now - task->began))
	{
		task->from = DT_NOBEGIN;	/* a new pass */
		task->began = now;
	}
	sql_open(&scope);
	sql_arg_text(&args, task->action);
	sql_arg(&args, TimestampTzGetDatum(task->from), false);
	sql_arg_time(&args, task->before);
	sql_arg(&args, Int32GetDatum(RETENTION_STRETCH), false);
	sql_arg(&args, BoolGetDatum(drops), false);
	(void) sql_write(task->keys ? &retention_keys : &retention_bodies, &args);
	sql_column(1, &value);
	pruned = DatumGetInt64(value);
	reached = sql_column_time(2);
	sql_column(3, &value);
	if (DatumGetInt64(value) < RETENTION_STRETCH)
		reached = task->before;	/* the end of what is old enough */
	sql_arg_text(&note, task->action);
	sql_arg_text(&note, task->keys ? "keys" : "bodies");
	sql_arg(&note, TimestampTzGetDatum(reached), false);
	sql_arg_time(&note, task->began);
	sql_arg(&note, Int64GetDatum(pruned), false);
	(void) sql_write(&retention_note, &note);
	sql_close(&scope);
	return (int) pruned;
}

/* The runs of jobs that keep them for a while only. */
static void
retention_prune_runs(TimestampTz now)
{
	SqlScope	scope;
	SqlArgs		args = {0};

	sql_open(&scope);
	sql_arg_time(&args, now);
	sql_arg(&args, Int32GetDatum(RETENTION_RUNS), false);
	(void) sql_write(&retention_runs, &args);
	sql_close(&scope);
}

/*
 * retention_prune
 *		One stretch for each action that asks for it, and old runs.  Called by
 *		sweep, alone.
 */
void
retention_prune(int *bodies, int *keys)
{
	TimestampTz now = GetCurrentTimestamp();
	int			n;
	Task	   *tasks = retention_read_tasks(now, &n);

	for (int i = 0; i < n; i++)
	{
		Action		action;
		int			pruned;

		action_get(tasks[i].action, false, &action);
		retention_deletes = tasks[i].keys;
		PG_TRY();
		{
			pruned = retention_run(&tasks[i], action.on_unknown == POLICY_DROP, now);
		}
		PG_FINALLY();
		{
			retention_deletes = false;
		}
		PG_END_TRY();
		*(tasks[i].keys ? keys : bodies) += pruned;
	}
	retention_deletes = true;
	PG_TRY();
	{
		retention_prune_runs(now);
	}
	PG_FINALLY();
	{
		retention_deletes = false;
	}
	PG_END_TRY();
}
