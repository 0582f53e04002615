/*
 * job.c
 *	  Registered jobs: how often they are due, what becomes of overlap.
 *
 * The registry is effect.job, read and written through registry.c.  A job's row
 * lock also protects its queue of firings: enqueueing and granting lock it,
 * read the lease again and count.  What a backend remembers of the registry
 * lives in registry.c.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"

#include "registry.h"

PG_FUNCTION_INFO_V1(effect_set_job);
PG_FUNCTION_INFO_V1(effect_drop_job);
PG_FUNCTION_INFO_V1(effect_firing_of);

/* The settings, in the order of set_job's arguments and of the columns. */
enum
{
	JOB_EVERY,
	JOB_OVERLAP,
	JOB_QUEUE_LIMIT,
	JOB_LEASE_FOR,
	JOB_AT_LEAST_FOR,
	JOB_ANCHOR,
	JOB_TIME_ZONE,
	JOB_CHECKPOINT_SCOPE,
	JOB_PAUSED,
	JOB_KEEP_RUNS_FOR,
	JOB_USABLE_BY,
	JOB_COUNT
};

static const Setting job_settings[JOB_COUNT] = {
	{"every", SETTING_INTERVAL}, {"overlap", SETTING_ENUM}, {"queue_limit", SETTING_PLAIN},
	{"lease_for", SETTING_INTERVAL}, {"at_least_for", SETTING_INTERVAL}, {"anchor", SETTING_TIME},
	{"time_zone", SETTING_TEXT}, {"checkpoint_scope", SETTING_ENUM}, {"paused", SETTING_PLAIN},
	{"keep_runs_for", SETTING_INTERVAL}, {"usable_by", SETTING_ROLES}
};

#define JOB_SELECT \
	"SELECT every, overlap::pg_catalog.text, queue_limit, lease_for, at_least_for, anchor," \
	" time_zone, checkpoint_scope::pg_catalog.text, paused, keep_runs_for, usable_by," \
	" registered_by::pg_catalog.text FROM effect.job WHERE job_key OPERATOR(pg_catalog.=) $1"

static Registry jobs = {
	"job", JOB_COUNT, job_settings,
	{JOB_SELECT, 1, {TEXTOID}},
	{JOB_SELECT " FOR UPDATE", 1, {TEXTOID}},
	{
		"INSERT INTO effect.job AS j (job_key, every, overlap, queue_limit, lease_for, at_least_for, anchor,"
		" time_zone, checkpoint_scope, paused, keep_runs_for, usable_by, registered_by, registered_at,"
		" changed_at) VALUES ($1, $2, $3::effect.overlap_policy, $4, $5, $6, $7, $8,"
		" $9::effect.checkpoint_scope, $10, $11, $12, $13, $14, $14)"
		" ON CONFLICT (job_key) DO UPDATE SET every = $2, overlap = $3::effect.overlap_policy,"
		" queue_limit = $4, lease_for = $5, at_least_for = $6, anchor = $7, time_zone = $8,"
		" checkpoint_scope = $9::effect.checkpoint_scope, paused = $10, keep_runs_for = $11,"
		" usable_by = $12, changed_at = $14 WHERE j.registered_by OPERATOR(pg_catalog.=) $13",
		14, {TEXTOID, INTERVALOID, TEXTOID, INT4OID, INTERVALOID, INTERVALOID, TIMESTAMPTZOID, TEXTOID,
			TEXTOID, BOOLOID, INTERVALOID, NAMEARRAYOID, NAMEOID, TIMESTAMPTZOID}
	}
};

static SqlPlan job_delete = {
	"DELETE FROM effect.job WHERE job_key OPERATOR(pg_catalog.=) $1",
	1, {TEXTOID}
};

static SqlPlan job_delete_queue = {
	"DELETE FROM effect.firing WHERE job_key OPERATOR(pg_catalog.=) $1 AND finished_at IS NULL",
	1, {TEXTOID}
};

/*
 * The slot that an instant falls into.  Whole days by the calendar of the time
 * zone, from the anchor's day; anything shorter by UTC, from the anchor.
 */
#define JOB_LOCAL_START " '2001-01-01 00:00:00'::pg_catalog.timestamp"	/* a Monday, there */

static SqlPlan job_slot_short = {
	"SELECT pg_catalog.to_char(pg_catalog.date_bin($1, $2, $3) AT TIME ZONE 'UTC',"
	" 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')",
	3, {INTERVALOID, TIMESTAMPTZOID, TIMESTAMPTZOID}
};

static SqlPlan job_slot_days = {
	"SELECT pg_catalog.to_char(pg_catalog.date_bin($1, $2 AT TIME ZONE $4, a.start), 'YYYY-MM-DD')"
	" FROM (SELECT pg_catalog.date_trunc('day', COALESCE($3 AT TIME ZONE $4," JOB_LOCAL_START "))) AS a(start)",
	4, {INTERVALOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID}
};

static SqlPlan job_slot_months = {
	"SELECT pg_catalog.to_char(pg_catalog.make_date(m.n OPERATOR(pg_catalog./) 12,"
	" (m.n OPERATOR(pg_catalog.%) 12) OPERATOR(pg_catalog.+) 1, 1), 'YYYY-MM') FROM"
	" (SELECT pg_catalog.date_part('year', $2 AT TIME ZONE $4)::pg_catalog.int4 OPERATOR(pg_catalog.*) 12"
	"   OPERATOR(pg_catalog.+) pg_catalog.date_part('month', $2 AT TIME ZONE $4)::pg_catalog.int4"
	"   OPERATOR(pg_catalog.-) 1,"
	"  pg_catalog.date_part('year', COALESCE($3 AT TIME ZONE $4," JOB_LOCAL_START "))::pg_catalog.int4"
	"   OPERATOR(pg_catalog.*) 12 OPERATOR(pg_catalog.+)"
	"   pg_catalog.date_part('month', COALESCE($3 AT TIME ZONE $4," JOB_LOCAL_START "))::pg_catalog.int4"
	"   OPERATOR(pg_catalog.-) 1) AS i(at, start)"
	" CROSS JOIN LATERAL (SELECT at OPERATOR(pg_catalog.-)"
	"  ((((at OPERATOR(pg_catalog.-) start) OPERATOR(pg_catalog.%) $1) OPERATOR(pg_catalog.+) $1)"
	"   OPERATOR(pg_catalog.%) $1)) AS m(n)",
	4, {INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID}
};

/* A registration as the rooms that claim and release use it. */
static void
job_from_row(const Registration *row, Job *job)
{
	char	   *overlap;

	memset(job, 0, sizeof(*job));
	if (!row->exists)
		return;
	overlap = TextDatumGetCString(row->value[JOB_OVERLAP]);
	job->registered = true;
	job->overlap = strcmp(overlap, "queue") == 0 ? OVERLAP_QUEUE
		: strcmp(overlap, "fail") == 0 ? OVERLAP_FAIL : OVERLAP_COALESCE;
	job->queue_limit = row->null[JOB_QUEUE_LIMIT] ? 0 : DatumGetInt32(row->value[JOB_QUEUE_LIMIT]);
	job->lease_for = row->null[JOB_LEASE_FOR] ? NULL : DatumGetIntervalP(row->value[JOB_LEASE_FOR]);
	job->at_least_for = registry_microseconds(row, JOB_AT_LEAST_FOR);
	job->paused = DatumGetBool(row->value[JOB_PAUSED]);
	job->checkpoint_carries =
		strcmp(TextDatumGetCString(row->value[JOB_CHECKPOINT_SCOPE]), "job") == 0;
}

/*
 * job_get
 *		How this job is registered, for someone who claims it: 42501 where the
 *		caller may not use it, LE003 where only registered jobs are allowed.
 */
void
job_get(const char *job_key, Job *job)
{
	Registration row;

	registry_read(&jobs, job_key, false, &row);
	if (!row.exists && effect_require_registered_jobs)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_NOT_FOUND),
				 errmsg("job \"%s\" is not registered", job_key),
				 errhint("Register it with effect.set_job(); effect.require_registered_jobs is on.")));
	if (row.exists)
		registry_check_usable(&jobs, job_key, &row, JOB_USABLE_BY);
	job_from_row(&row, job);
}

/* The same for someone who holds it already: nothing is refused. */
void
job_get_any(const char *job_key, Job *job)
{
	Registration row;

	registry_read(&jobs, job_key, false, &row);
	job_from_row(&row, job);
}

/* Lock a job's registration, which protects its queue; false: not registered. */
bool
job_lock(const char *job_key)
{
	Registration row;

	registry_read(&jobs, job_key, true, &row);
	return row.exists;
}

/* A name of a time zone that PostgreSQL knows. */
static void
job_check_time_zone(const Registration *row)
{
	if (!row->null[JOB_TIME_ZONE])
		(void) DirectFunctionCall2(timestamptz_zone, row->value[JOB_TIME_ZONE],
								   TimestampTzGetDatum(0));
}

/* Whole days and weeks, whole months, or something shorter: nothing between. */
static void
job_check_every(const Registration *row)
{
	Interval   *every;

	if (row->null[JOB_EVERY])
		return;
	every = DatumGetIntervalP(row->value[JOB_EVERY]);
	if ((every->month != 0) + (every->day != 0) + (every->time != 0) != 1 ||
		(every->time != 0 && every->time < USECS_PER_SEC))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("every must be whole months, whole days, or hours, minutes and seconds"),
				 errhint("For example '1 month', '7 days', '15 minutes'; at least one second.")));
}

/* What no claim and no firing could be made of. */
static void
job_check_times(const Registration *row)
{
	if (!row->null[JOB_LEASE_FOR])
		(void) lease_end(GetCurrentTimestamp(), DatumGetIntervalP(row->value[JOB_LEASE_FOR]));
	if (!row->null[JOB_ANCHOR] && TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(row->value[JOB_ANCHOR])))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("anchor must be finite")));
}

/* What will go wrong, said before it does. */
static void
job_lint(const char *job_key, const Registration *row)
{
	int64		every = registry_microseconds(row, JOB_EVERY);
	int64		lease_for = registry_microseconds(row, JOB_LEASE_FOR);

	if (every > 0 && lease_for >= every)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("the lease of job \"%s\" lasts as long as its interval", job_key),
				 errdetail("A run that crashes blocks the next one until its lease has expired."),
				 errhint("Choose a lease_for shorter than every, and renew it while the run works.")));
	if (every > 0 && registry_microseconds(row, JOB_AT_LEAST_FOR) >= every)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("job \"%s\" cools down for longer than its interval", job_key),
				 errdetail("Each second firing would be told cooling_down.")));
}

/* What a whole registration must have. */
static void
job_check(const char *job_key, const Registration *row)
{
	bool		queues;

	if (row->null[JOB_OVERLAP])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("overlap must be chosen when a job is first registered"),
				 errhint("coalesce drops a firing while a run is live, queue lets it wait, fail raises LE002.")));
	queues = strcmp(TextDatumGetCString(row->value[JOB_OVERLAP]), "queue") == 0;
	if (queues && row->null[JOB_QUEUE_LIMIT])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("overlap queue needs queue_limit"),
				 errhint("How many firings may wait? What comes after them is told saturated.")));
	if (!row->null[JOB_QUEUE_LIMIT] && DatumGetInt32(row->value[JOB_QUEUE_LIMIT]) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("queue_limit must be at least 1")));
	job_check_every(row);
	job_check_times(row);
	job_check_time_zone(row);
	job_lint(job_key, row);
}

/*
 * effect.set_job(job_key, every, overlap, queue_limit, lease_for, at_least_for,
 *		anchor, time_zone, checkpoint_scope, paused, keep_runs_for, usable_by)
 *		-> void.  NULL keeps, '0' and '{}' clear.  Errors: 22004, 22023, 25006,
 *		42501 (registered by another role), 42704 (no such role).
 */
Datum
effect_set_job(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	Registration before;
	Registration after;

	begin_writing("effect.set_job()");
	registry_read(&jobs, job_key, true, &before);
	registry_check_owner(&jobs, job_key, &before);
	if (!before.exists)
	{
		before.value[JOB_CHECKPOINT_SCOPE] = CStringGetTextDatum("firing");
		before.value[JOB_PAUSED] = BoolGetDatum(false);
		before.null[JOB_CHECKPOINT_SCOPE] = before.null[JOB_PAUSED] = false;
	}
	registry_merge(fcinfo, &jobs, &before, &after);
	job_check(job_key, &after);
	registry_write(&jobs, job_key, &after);
	PG_RETURN_VOID();
}

/*
 * effect.drop_job(job_key) -> boolean
 *		false: it was not registered.  Errors: 22004, 22023, 25006, 42501.
 */
Datum
effect_drop_job(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	Registration row;
	SqlScope	scope;
	SqlArgs		args = {0};

	begin_writing("effect.drop_job()");
	registry_read(&jobs, job_key, true, &row);
	registry_check_owner(&jobs, job_key, &row);
	sql_open(&scope);
	sql_arg_text(&args, job_key);
	(void) sql_write(&job_delete_queue, &args);
	(void) sql_write(&job_delete, &args);
	sql_close(&scope);
	PG_RETURN_BOOL(row.exists);
}

/* The plan and first argument for this length of slot. */
static SqlPlan *
job_slot_plan(const Interval *every, SqlArgs *args)
{
	if (every->month != 0)
	{
		sql_arg(args, Int32GetDatum(every->month), false);
		return &job_slot_months;
	}
	sql_arg(args, IntervalPGetDatum(every), false);
	return every->day != 0 ? &job_slot_days : &job_slot_short;
}

/*
 * job_firing
 *		The name of the moment that "at" belongs to; NULL: the job has no every.
 */
char *
job_firing(const char *job_key, TimestampTz at)
{
	Registration row;
	SqlScope	scope;
	SqlArgs		args = {0};
	SqlPlan    *plan;
	TimestampTz monday = (TimestampTz) (date2j(2001, 1, 1) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY;
	char	   *firing;

	registry_read(&jobs, job_key, false, &row);
	if (!row.exists || row.null[JOB_EVERY])
		return NULL;
	sql_open(&scope);
	plan = job_slot_plan(DatumGetIntervalP(row.value[JOB_EVERY]), &args);
	sql_arg(&args, TimestampTzGetDatum(at), false);
	if (row.null[JOB_ANCHOR] && plan == &job_slot_short)
		sql_arg(&args, TimestampTzGetDatum(monday), false);
	else
		sql_arg(&args, row.value[JOB_ANCHOR], row.null[JOB_ANCHOR]);
	if (plan->nargs == 4)
		sql_arg(&args, row.null[JOB_TIME_ZONE] ? CStringGetTextDatum("UTC") : row.value[JOB_TIME_ZONE], false);
	(void) sql_read(plan, &args);
	firing = sql_column_text(&scope, 1);
	sql_close(&scope);
	return firing;
}

/*
 * effect.firing_of(job_key, at) -> text
 *		Errors: 22004, 22023, LE003 (not registered, or without every).
 */
Datum
effect_firing_of(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	char	   *firing;

	if (PG_ARGISNULL(1))
		arg_missing("at");
	if (TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMPTZ(1)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("at must be finite")));
	firing = job_firing(job_key, PG_GETARG_TIMESTAMPTZ(1));
	if (firing == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_NOT_FOUND),
				 errmsg("job \"%s\" is not registered with an interval", job_key),
				 errhint("Set it: effect.set_job(job_key, every => '1 day', ...).")));
	PG_RETURN_TEXT_P(cstring_to_text(firing));
}
