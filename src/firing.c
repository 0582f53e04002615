/*
 * firing.c
 *	  The firings of a job: those that wait their turn, those that are finished.
 *
 * effect.firing holds both; a row without finished_at waits.  The queue of a
 * job is protected by the row lock of its registration (job_lock), which every
 * enqueue and every grant takes before it looks.  A finished firing is kept: it
 * is run to its end once, however often it is tried.  Nothing lives here
 * between calls; all of it is called inside a scope.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/async.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "direct.h"

static SqlPlan firing_select = {
	"SELECT finished_at IS NOT NULL FROM effect.firing WHERE job_key OPERATOR(pg_catalog.=) $1"
	" AND firing OPERATOR(pg_catalog.=) $2",
	2, {TEXTOID, TEXTOID}
};

static SqlPlan firing_select_oldest = {
	"SELECT firing FROM effect.firing WHERE job_key OPERATOR(pg_catalog.=) $1 AND finished_at IS NULL"
	" ORDER BY queued_at, firing LIMIT 1",
	1, {TEXTOID}
};

static SqlPlan firing_count_queued = {
	"SELECT pg_catalog.count(*) FROM effect.firing WHERE job_key OPERATOR(pg_catalog.=) $1"
	" AND finished_at IS NULL",
	1, {TEXTOID}
};

static SqlPlan firing_insert_queued = {
	"INSERT INTO effect.firing (job_key, firing, queued_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
	3, {TEXTOID, TEXTOID, TIMESTAMPTZOID}
};

static SqlPlan firing_insert_head = {
	"INSERT INTO effect.firing (job_key, firing, queued_at) SELECT $1, $2,"
	" LEAST($3, pg_catalog.min(queued_at) OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => 0.000001))"
	" FROM effect.firing WHERE job_key OPERATOR(pg_catalog.=) $1 AND finished_at IS NULL"
	" ON CONFLICT DO NOTHING",
	3, {TEXTOID, TEXTOID, TIMESTAMPTZOID}
};

static SqlPlan firing_delete_queued = {
	"DELETE FROM effect.firing WHERE job_key OPERATOR(pg_catalog.=) $1"
	" AND firing OPERATOR(pg_catalog.=) $2 AND finished_at IS NULL",
	2, {TEXTOID, TEXTOID}
};

/* A firing that waits again while a run of it finishes is finished, too. */
static SqlPlan firing_insert_finished = {
	"INSERT INTO effect.firing AS f (job_key, firing, fencing_token, finished_at)"
	" VALUES ($1, $2, $3, $4) ON CONFLICT (job_key, firing) DO UPDATE"
	" SET fencing_token = $3, finished_at = $4, queued_at = NULL WHERE f.finished_at IS NULL",
	4, {TEXTOID, TEXTOID, INT8OID, TIMESTAMPTZOID}
};

/* The columns of effect.firing */
enum
{
	FIRING_JOB_KEY,
	FIRING_FIRING,
	FIRING_QUEUED_AT,
	FIRING_TOKEN,
	FIRING_FINISHED_AT,
	FIRING_COLUMNS
};

static const char *const firing_names[FIRING_COLUMNS] = {
	"job_key", "firing", "queued_at", "fencing_token", "finished_at"
};

static DirectTable firing_table = {"firing", "firing_pkey", 2, FIRING_COLUMNS, firing_names};

static void
firing_args(SqlArgs *args, const char *job_key, const char *firing)
{
	sql_arg_text(args, job_key);
	sql_arg_text(args, firing);
}

/* Where a firing stands: nothing known, waiting, finished. */
FiringState
firing_state(const char *job_key, const char *firing)
{
	SqlArgs		args = {0};
	Datum		finished;
	FiringState state = FIRING_NEW;

	if (firing == NULL)
		return FIRING_NEW;
	if (direct_begin(&firing_table, AccessShareLock))
	{
		Datum		key[] = {CStringGetTextDatum(job_key), CStringGetTextDatum(firing)};

		if (direct_find(&firing_table, key, LOCK_NONE))
			state = firing_table.null[FIRING_FINISHED_AT] ? FIRING_QUEUED : FIRING_FINISHED;
		direct_end(&firing_table);
		return state;
	}
	firing_args(&args, job_key, firing);
	if (sql_read(&firing_select, &args) == 0)
		return FIRING_NEW;
	sql_column(1, &finished);
	return DatumGetBool(finished) ? FIRING_FINISHED : FIRING_QUEUED;
}

/* The firing that has waited longest; NULL: none waits. */
char *
firing_oldest(SqlScope *scope, const char *job_key)
{
	SqlArgs		args = {0};

	sql_arg_text(&args, job_key);
	return sql_read(&firing_select_oldest, &args) > 0 ? sql_column_text(scope, 1) : NULL;
}

/* Let a firing wait, unless the queue is full; one that waits already is once. */
FiringState
firing_enqueue(const char *job_key, const char *firing, int limit, TimestampTz since)
{
	SqlArgs		args = {0};

	if (firing_state(job_key, firing) == FIRING_QUEUED)
		return FIRING_QUEUED;
	if (firing_queue_is_full(job_key, limit))
	{
		stats_count(STATS_JOB, job_key, COUNT_SATURATED);
		firing_notify("saturated", job_key, firing);
		return FIRING_SATURATED;
	}
	firing_args(&args, job_key, firing);
	sql_arg_time(&args, since);
	(void) sql_write(&firing_insert_queued, &args);
	stats_deed(STATS_JOB, job_key, COUNT_QUEUED);
	return FIRING_QUEUED;
}

/* Its run was taken away: it waits again, before all others, whatever the limit. */
void
firing_return(const char *job_key, const char *firing, TimestampTz since)
{
	SqlArgs		args = {0};

	firing_args(&args, job_key, firing);
	sql_arg_time(&args, since);
	(void) sql_write(&firing_insert_head, &args);
}

/* Would one more be told saturated? */
bool
firing_queue_is_full(const char *job_key, int limit)
{
	SqlArgs		args = {0};

	sql_arg_text(&args, job_key);
	(void) sql_read(&firing_count_queued, &args);
	return sql_column_int(1) >= limit;
}

/* It waits no more: it is granted. */
void
firing_dequeue(const char *job_key, const char *firing)
{
	SqlArgs		args = {0};

	if (firing == NULL)
		return;
	firing_args(&args, job_key, firing);
	(void) sql_write(&firing_delete_queued, &args);
}

/* A run has finished it. */
void
firing_finish(const char *job_key, const char *firing, int64 token)
{
	SqlArgs		args = {0};

	firing_args(&args, job_key, firing);
	sql_arg(&args, Int64GetDatum(token), false);
	sql_arg_time(&args, GetCurrentTimestamp());
	(void) sql_write(&firing_insert_finished, &args);
}

/*
 * firing_notify
 *		NOTIFY effect with a JSON payload.  Only where somebody may listen for
 *		it: a NOTIFY makes PREPARE TRANSACTION fail.
 */
void
firing_notify(const char *event, const char *job_key, const char *firing)
{
	StringInfoData payload;

	initStringInfo(&payload);
	appendStringInfoString(&payload, "{\"event\": ");
	escape_json(&payload, event);
	appendStringInfoString(&payload, ", \"job_key\": ");
	escape_json(&payload, job_key);
	appendStringInfoString(&payload, ", \"firing\": ");
	if (firing)
		escape_json(&payload, firing);
	else
		appendStringInfoString(&payload, "null");
	appendStringInfoChar(&payload, '}');
	Async_Notify("effect", payload.data);
	pfree(payload.data);
}
