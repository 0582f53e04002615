/*
 * lease.c
 *	  Who holds a job, under which token, until when.
 *
 * No lease lives in backend memory: ownership is the token, never the session,
 * so every call may come through another connection.
 *
 * What protects effect.lease is an advisory lock of class EFFECT_LOCK_JOB on a
 * 64-bit hash of the job's key (a collision costs time, nothing else), held to
 * the end of the transaction and taken before any row lock:
 *
 *		commit check of a fence		RowShare
 *		renew, release				ShareUpdateExclusive
 *		claim, revoke				Exclusive
 *
 * so a grant waits for commits that were found current, and commits wait for a
 * grant in flight, but renewals and commits of one holder never meet.  A claim
 * never hangs: it tries, then one claimer a job queues for a second.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/builtins.h"

#include "direct.h"

PG_FUNCTION_INFO_V1(effect_renew_lease);
PG_FUNCTION_INFO_V1(effect_release_lease);
PG_FUNCTION_INFO_V1(effect_revoke_lease);

static SqlPlan lease_select = {
	"SELECT owner, fencing_token, lease_until, lease_for, firing, nonce, granted_at, xmin, ctid"
	" FROM effect.lease WHERE job_key OPERATOR(pg_catalog.=) $1",
	1, {TEXTOID}
};

static SqlPlan lease_held = {
	"SELECT job_key FROM effect.lease WHERE owner IS NOT NULL ORDER BY job_key",
	0
};

static SqlPlan lease_insert = {
	"INSERT INTO effect.lease (job_key, owner, fencing_token, lease_until, lease_for, firing,"
	" nonce, granted_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
	8, {TEXTOID, TEXTOID, INT8OID, TIMESTAMPTZOID, INTERVALOID, TEXTOID, UUIDOID, TIMESTAMPTZOID}
};

static SqlPlan lease_update = {
	"UPDATE effect.lease SET owner = $2, fencing_token = $3, lease_until = $4, lease_for = $5,"
	" firing = $6, nonce = $7, granted_at = $8 WHERE job_key OPERATOR(pg_catalog.=) $1",
	8, {TEXTOID, TEXTOID, INT8OID, TIMESTAMPTZOID, INTERVALOID, TEXTOID, UUIDOID, TIMESTAMPTZOID}
};

static SqlPlan lease_extend = {
	"UPDATE effect.lease SET lease_until = $2 WHERE job_key OPERATOR(pg_catalog.=) $1",
	2, {TEXTOID, TIMESTAMPTZOID}
};

static SqlPlan lease_free = {
	"UPDATE effect.lease SET owner = NULL WHERE job_key OPERATOR(pg_catalog.=) $1",
	1, {TEXTOID}
};

uint64
lease_hash(const char *job_key)
{
	return hash_bytes_extended((const unsigned char *) job_key, strlen(job_key), 0);
}

/* Take the job's lock; false only where "wait" is false and it is busy. */
bool
lease_lock(const char *job_key, LOCKMODE mode, bool wait)
{
	return lock_advisory(EFFECT_LOCK_JOB, lease_hash(job_key), mode, wait);
}

/*
 * lease_lock_all
 *		Take the lock of every job that has a holder, in key order: no commit
 *		that was found current is in flight when this returns.  Waits.
 */
void
lease_lock_all(void)
{
	SqlScope	scope;
	SqlArgs		none = {0};
	char	  **jobs;
	int			n;

	sql_open(&scope);
	(void) sql_read(&lease_held, &none);
	jobs = sql_rows_text(&scope, &n);
	sql_close(&scope);
	for (int i = 0; i < n; i++)
		(void) lease_lock(jobs[i], ExclusiveLock, true);
}

/* The columns of effect.lease */
enum
{
	LEASE_JOB_KEY,
	LEASE_OWNER,
	LEASE_TOKEN,
	LEASE_UNTIL,
	LEASE_FOR,
	LEASE_FIRING,
	LEASE_NONCE,
	LEASE_GRANTED_AT,
	LEASE_COLUMNS
};

static const char *const lease_names[LEASE_COLUMNS] = {
	"job_key", "owner", "fencing_token", "lease_until", "lease_for", "firing", "nonce", "granted_at"
};

static DirectTable lease_table = {"lease", "lease_pkey", 1, LEASE_COLUMNS, lease_names};

/* The row that direct_find() found. */
static void
lease_from_row(Lease *lease)
{
	Datum	   *value = lease_table.value;
	bool	   *null = lease_table.null;

	lease->owner = null[LEASE_OWNER] ? NULL : TextDatumGetCString(value[LEASE_OWNER]);
	lease->token = DatumGetInt64(value[LEASE_TOKEN]);
	lease->until = DatumGetTimestampTz(value[LEASE_UNTIL]);
	lease->lease_for = *DatumGetIntervalP(value[LEASE_FOR]);
	lease->firing = null[LEASE_FIRING] ? NULL : TextDatumGetCString(value[LEASE_FIRING]);
	if (!null[LEASE_NONCE])
	{
		lease->nonce = palloc(sizeof(pg_uuid_t));
		*lease->nonce = *DatumGetUUIDP(value[LEASE_NONCE]);
	}
	lease->granted_at = DatumGetTimestampTz(value[LEASE_GRANTED_AT]);
	lease->ours = lease_table.ours;
}

/* Read it as a statement does, where the table is not plain. */
static void
lease_read_by_sql(const char *job_key, Lease *lease)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	Datum		value;
	Datum		tid;

	sql_open(&scope);
	sql_arg_text(&args, job_key);
	if (sql_read(&lease_select, &args) > 0)
	{
		lease->owner = sql_column_text(&scope, 1);
		sql_column(2, &value);
		lease->token = DatumGetInt64(value);
		lease->until = sql_column_time(3);
		sql_column(4, &value);
		lease->lease_for = *DatumGetIntervalP(value);
		lease->firing = sql_column_text(&scope, 5);
		lease->nonce = sql_column_uuid(&scope, 6);
		lease->granted_at = sql_column_time(7);
		sql_column(8, &value);
		sql_column(9, &tid);
		lease->ours = sql_is_ours("lease", DatumGetTransactionId(value),
								  (ItemPointer) DatumGetPointer(tid));
	}
	sql_close(&scope);
}

/*
 * lease_read
 *		The latest committed lease of a job, or our own uncommitted one.  A job
 *		that never had a lease has token 0.
 */
void
lease_read(const char *job_key, Lease *lease)
{
	Datum		key;

	memset(lease, 0, sizeof(*lease));
	if (!direct_begin(&lease_table, AccessShareLock))
	{
		lease_read_by_sql(job_key, lease);
		return;
	}
	key = CStringGetTextDatum(job_key);
	if (direct_find(&lease_table, &key, LOCK_NONE))
		lease_from_row(lease);
	direct_end(&lease_table);
}

/* The same inside a scope, into the memory of its caller. */
void
lease_read_in(SqlScope *scope, const char *job_key, Lease *lease)
{
	MemoryContext inside = MemoryContextSwitchTo(scope->caller);

	lease_read(job_key, lease);
	MemoryContextSwitchTo(inside);
}

/* Change one column of a lease: its end, or (NULL) its owner. */
static void
lease_change(const char *job_key, int column, TimestampTz until)
{
	Datum		key = CStringGetTextDatum(job_key);
	SqlScope	scope;
	SqlArgs		args = {0};

	if (direct_begin(&lease_table, RowExclusiveLock))
	{
		if (direct_find(&lease_table, &key, LOCK_CHANGE))
		{
			direct_set(&lease_table, column, TimestampTzGetDatum(until), until == 0);
			direct_update(&lease_table);
		}
		direct_end(&lease_table);
		return;
	}
	sql_open(&scope);
	sql_arg(&args, key, false);
	if (column == LEASE_UNTIL)
		sql_arg_time(&args, until);
	(void) sql_write(column == LEASE_UNTIL ? &lease_extend : &lease_free, &args);
	sql_close(&scope);
}

/* Write a grant into the lease's row; false: not directly. */
static bool
lease_write(const char *job_key, const Lease *grant, bool first)
{
	Datum		key = CStringGetTextDatum(job_key);

	if (!direct_begin(&lease_table, RowExclusiveLock))
		return false;
	if (first || direct_find(&lease_table, &key, LOCK_CHANGE))
	{
		direct_set(&lease_table, LEASE_JOB_KEY, key, false);
		direct_set_text(&lease_table, LEASE_OWNER, grant->owner);
		direct_set(&lease_table, LEASE_TOKEN, Int64GetDatum(grant->token), false);
		direct_set(&lease_table, LEASE_UNTIL, TimestampTzGetDatum(grant->until), false);
		direct_set(&lease_table, LEASE_FOR, IntervalPGetDatum(&grant->lease_for), false);
		direct_set_text(&lease_table, LEASE_FIRING, grant->firing);
		direct_set(&lease_table, LEASE_NONCE, UUIDPGetDatum(grant->nonce), grant->nonce == NULL);
		direct_set(&lease_table, LEASE_GRANTED_AT, TimestampTzGetDatum(grant->granted_at), false);
		if (first)
			direct_insert(&lease_table);
		else
			direct_update(&lease_table);
	}
	direct_end(&lease_table);
	return true;
}

/*
 * lease_grant
 *		Write a grant: the job's lease row, its "first" or the next version of
 *		it, and the run.  Under the job's lock, inside a scope.
 */
void
lease_grant(const char *job_key, const Lease *grant, bool first)
{
	SqlArgs		args = {0};

	if (!lease_write(job_key, grant, first))
	{
		sql_arg_text(&args, job_key);
		sql_arg_text(&args, grant->owner);
		sql_arg(&args, Int64GetDatum(grant->token), false);
		sql_arg_time(&args, grant->until);
		sql_arg(&args, IntervalPGetDatum(&grant->lease_for), false);
		sql_arg_text(&args, grant->firing);
		sql_arg_uuid(&args, grant->nonce);
		sql_arg_time(&args, grant->granted_at);
		(void) sql_write(first ? &lease_insert : &lease_update, &args);
	}
	run_start(job_key, grant);
}

/* What a token is worth against the lease as it stands. */
TokenStanding
lease_standing(const Lease *lease, int64 token)
{
	if (token > lease->token)
		return TOKEN_NEVER;
	if (token == lease->token && lease->owner != NULL)
		return TOKEN_CURRENT;
	return TOKEN_SUPERSEDED;
}

/*
 * lease_accepts
 *		Read the lease; true: the token is current, false: it is superseded.  A
 *		token that was never committed here raises LE003: it belongs to a claim
 *		still open, or was lost with a failed-over server.
 */
bool
lease_accepts(const char *job_key, int64 token, Lease *lease)
{
	lease_read(job_key, lease);
	if (lease->token == 0)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_NOT_FOUND),
				 errmsg("job \"%s\" never had a lease in this database", job_key),
				 errhint("Claim it first: SELECT * FROM effect.claim_lease(...).")));
	switch (lease_standing(lease, token))
	{
		case TOKEN_CURRENT:
			return true;
		case TOKEN_SUPERSEDED:
			return false;
		case TOKEN_NEVER:
			break;
	}
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_NOT_FOUND),
			 errmsg("token " INT64_FORMAT " of job \"%s\" was never committed here", token, job_key),
			 errdetail("The job's latest token is " INT64_FORMAT ".", lease->token),
			 errhint("COMMIT the claim before using its token; after a failover, claim again.")));
	pg_unreachable();
}

/*
 * lease_refused
 *		A superseded token came back.  If its run was written off as abandoned
 *		it was slow, not dead: say so, once.
 */
void
lease_refused(const char *job_key, int64 token, const char *what)
{
	SqlScope	scope;
	JournalEntry entry = {.event = "fenced", .job_key = job_key, .token = token, .detail = what};

	stats_fenced(job_key, token, what);
	sql_open(&scope);
	if (run_came_back(job_key, token))
		journal_add(&entry);
	sql_close(&scope);
}

/* When a lease taken or renewed now would end; 22023 for an absurd length. */
TimestampTz
lease_end(TimestampTz now, Interval *lease_for)
{
	TimestampTz until = now;

	/* not so long that adding it would fail in its own words */
	if (lease_for->month > -10000 && lease_for->month < 10000 &&
		lease_for->day > -1000000 && lease_for->day < 1000000 &&
		lease_for->time > -EFFECT_MAX_INTERVAL * 1000 && lease_for->time < EFFECT_MAX_INTERVAL * 1000)
		until = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
														TimestampTzGetDatum(now),
														IntervalPGetDatum(lease_for)));
	if (until <= now || until - now > EFFECT_MAX_INTERVAL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lease_for must be positive and at most 366 days")));
	return until;
}

/*
 * A run is over that did not finish its firing: where the job queues, the
 * firing goes back to the head of the queue, or nobody would ever run it.
 */
static void
lease_requeue(const char *job_key, const Lease *lease)
{
	Job			job;

	if (lease->firing == NULL)
		return;
	job_get_any(job_key, &job);
	if (job.registered && job.overlap == OVERLAP_QUEUE && job_lock(job_key) &&
		firing_state(job_key, lease->firing) == FIRING_NEW)
		firing_return(job_key, lease->firing, lease->granted_at);
}

/*
 * Take a run's lease away: its end, and its submitted effects, which are
 * unknown from now on, are written in the same transaction.  How many.
 */
int
lease_take_away(const char *job_key, const Lease *lease, const char *outcome, const char *event,
				const char *reason)
{
	int			effects;
	JournalEntry entry = {.event = event, .job_key = job_key, .token = lease->token};

	run_close(job_key, lease->token, outcome, NULL);
	lease_requeue(job_key, lease);
	effects = ledger_abandon(job_key, lease->token, psprintf("the run was %s", outcome));
	entry.detail = psprintf("held by %s until %s; %d effect(s) turned unknown; %s", lease->owner,
							timestamptz_to_str(lease->until), effects, reason);
	journal_add(&entry);
	return effects;
}

/*
 * lease_expire
 *		End a run whose lease has expired, exactly as a thief would, except that
 *		nobody takes it: the lock by try, the clock read again.  How many of its
 *		effects turned unknown; -1: it is busy, was renewed, or is free already.
 */
int
lease_expire(const char *job_key)
{
	SqlScope	scope;
	Lease		lease;
	int			effects = -1;

	if (!lease_lock(job_key, ExclusiveLock, false))
		return -1;
	sql_open(&scope);
	lease_read_in(&scope, job_key, &lease);
	if (lease.owner != NULL && lease.until <= GetCurrentTimestamp())
	{
		lease_change(job_key, LEASE_OWNER, 0);
		effects = lease_take_away(job_key, &lease, "abandoned", "expired", "ended by sweep");
		stats_deed(STATS_JOB, job_key, COUNT_EXPIRED);
		cluster_flush_commit();
	}
	sql_close(&scope);
	return effects;
}

/*
 * Lock the job as its holder and look: true where the token is current.  A
 * superseded caller does not wait for anybody's lock.
 */
static bool
lease_hold(const char *job_key, int64 token, Lease *lease)
{
	if (!lease_accepts(job_key, token, lease))
		return false;
	(void) lease_lock(job_key, ShareUpdateExclusiveLock, true);
	return lease_accepts(job_key, token, lease);
}

/* Extend a lease by its holder; its new end, 0: fenced. */
TimestampTz
lease_renew(const char *job_key, int64 token, Interval *lease_for)
{
	Lease		lease;
	TimestampTz until;

	if (!lease_hold(job_key, token, &lease))
	{
		lease_refused(job_key, token, "renew_lease");
		return 0;
	}
	/* the clock is read after all waiting is over */
	until = Max(lease_end(GetCurrentTimestamp(), lease_for ? lease_for : &lease.lease_for), lease.until);
	lease_change(job_key, LEASE_UNTIL, until);
	stats_deed(STATS_JOB, job_key, COUNT_RENEWED);
	return until;
}

/*
 * effect.renew_lease(job_key, fencing_token, lease_for) -> timestamptz
 *		The new end; NULL: fenced.  Never shortens; NULL lease_for: as claimed.
 *		Errors: 22004, 22023, 25006, LE003.
 */
Datum
effect_renew_lease(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	int64		token = arg_token(fcinfo, 1);
	Interval   *lease_for = PG_ARGISNULL(2) ? NULL : PG_GETARG_INTERVAL_P(2);
	TimestampTz until;

	if (lease_for)
		(void) lease_end(GetCurrentTimestamp(), lease_for);
	begin_writing("effect.renew_lease()");
	until = lease_renew(job_key, token, lease_for);
	if (until == 0)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(until);
}

/*
 * Write the end of a run, and of its firing and checkpoint where it finished
 * one.  Somebody who waits for the job is told, under the queue's own lock.
 */
static void
lease_end_run(const char *job_key, const Lease *lease, const char *outcome, Jsonb *detail)
{
	SqlScope	scope;
	Job			job;
	bool		finished = strcmp(outcome, "finished") == 0;
	bool		queues;

	job_get_any(job_key, &job);
	queues = job.registered && job.overlap == OVERLAP_QUEUE && job_lock(job_key);
	sql_open(&scope);
	lease_change(job_key, LEASE_OWNER, 0);
	run_close(job_key, lease->token, outcome, detail);
	if (finished && lease->firing != NULL)
		firing_finish(job_key, lease->firing, lease->token);
	if (queues && firing_oldest(&scope, job_key) != NULL)
		firing_notify("released", job_key, lease->firing);
	sql_close(&scope);
	stats_deed(STATS_JOB, job_key, finished ? COUNT_FINISHED : COUNT_FAILED);
	if (finished && !job.checkpoint_carries)
		checkpoint_write(job_key, lease->firing, false, 0, NULL);
}

/* End a run by its holder; false: fenced. */
bool
lease_release(const char *job_key, int64 token, const char *outcome, Jsonb *detail)
{
	Lease		lease;

	if (lease_hold(job_key, token, &lease))
	{
		lease_end_run(job_key, &lease, outcome, detail);
		return true;
	}
	if (run_ended_so(job_key, token, outcome))
		return true;
	lease_refused(job_key, token, "release_lease");
	return false;
}

/*
 * effect.release_lease(job_key, fencing_token, outcome, detail) -> boolean
 *		The normal end of a run, also inside its fenced transaction.  false:
 *		fenced; releasing again with the same outcome is true again.
 *		Errors: 22004, 22023 (an outcome a caller cannot give), 25006, LE003.
 */
Datum
effect_release_lease(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	int64		token = arg_token(fcinfo, 1);
	char	   *outcome = arg_enum(fcinfo, 2, "outcome");
	Jsonb	   *detail = arg_jsonb(fcinfo, 3, "detail");

	if (strcmp(outcome, "finished") != 0 && strcmp(outcome, "failed") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a run cannot be released as %s", outcome),
				 errhint("The outcome of a release is finished or failed.")));
	begin_writing("effect.release_lease()");
	PG_RETURN_BOOL(lease_release(job_key, token, outcome, detail));
}

/*
 * effect.revoke_lease(job_key, reason) -> bigint
 *		Operator: fence the holder now.  The token revoked; NULL: nobody held
 *		it.  Waits for fenced commits in flight (lock_timeout bounds that).
 *		Errors: 22004, 22023, 25006, LE003.
 */
Datum
effect_revoke_lease(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	char	   *reason = arg_text(fcinfo, 1, "reason", EFFECT_MAX_REASON);
	Lease		lease;
	SqlScope	scope;

	begin_writing("effect.revoke_lease()");
	(void) lease_lock(job_key, ExclusiveLock, true);
	sql_open(&scope);
	lease_read_in(&scope, job_key, &lease);
	if (lease.owner != NULL)
	{
		lease_change(job_key, LEASE_OWNER, 0);
		(void) lease_take_away(job_key, &lease, "revoked", "revoked", reason);
		stats_deed(STATS_JOB, job_key, COUNT_REVOKED);
		cluster_flush_commit();
	}
	sql_close(&scope);
	if (lease.token == 0)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_NOT_FOUND),
				 errmsg("job \"%s\" never had a lease in this database", job_key),
				 errhint("See the view effect.leases.")));
	if (lease.owner == NULL)
		PG_RETURN_NULL();
	PG_RETURN_INT64(lease.token);
}
