/*
 * claim.c
 *	  Taking the lease of a job: claim_lease and claim_any.
 *
 * A live lease answers from one read, without a lock, a write or a transaction
 * id.  Only a free or an expired one takes the job's exclusive lock (modes and
 * reasons: lease.c), reads again, and writes the grant, its run and, where it
 * is a theft, the end of the old run.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_claim_lease);
PG_FUNCTION_INFO_V1(effect_claim_any);

/* Tokens stay below this for JavaScript's sake */
#define LEASE_MAX_TOKEN		(INT64CONST(1) << 53)

/* How long the one queued claimer waits, in milliseconds */
#define LEASE_QUEUE_MS		1000

/* How often a claim that holds the registration looks for the job's lock */
#define CLAIM_LOOKS			50
#define CLAIM_LOOK_EVERY	2000L	/* microseconds */

/* What a caller asks for */
typedef struct Ask
{
	const char *job_key;
	const char *owner;
	const char *firing;
	pg_uuid_t  *nonce;
	Interval   *lease_for;
	bool		may_wait;		/* for the job's lock, a second at most */
	Job			job;
} Ask;

/* What it is told */
typedef struct Told
{
	const char *verdict;
	int64		token;			/* 0: none */
	TimestampTz until;
	const char *holder;
	const char *firing;
	const char *asked;			/* what became of the firing that was passed */
	Jsonb	   *checkpoint;
} Told;

static bool
claim_is_live(const Lease *lease, TimestampTz now)
{
	return lease->owner != NULL && lease->until > now;
}

static bool
claim_queues(const Ask *ask)
{
	return ask->job.registered && ask->job.overlap == OVERLAP_QUEUE;
}

static bool
claim_is_for(const Lease *lease, const Ask *ask)
{
	if (lease->firing == NULL || ask->firing == NULL)
		return lease->firing == ask->firing;
	return strcmp(lease->firing, ask->firing) == 0;
}

/*
 * What became of the firing that was passed, where the grant it asks for again
 * was for one that had waited longer; NULL: that grant was for something else.
 */
static const char *
claim_asked_again(const Lease *lease, const Ask *ask)
{
	if (claim_is_for(lease, ask))
		return "granted";
	if (!claim_queues(ask) || lease->firing == NULL)
		return NULL;
	if (firing_state(ask->job_key, ask->firing) == FIRING_QUEUED)
		return "queued";
	return firing_queue_is_full(ask->job_key, ask->job.queue_limit) ? "saturated" : NULL;
}

/*
 * Is the live lease the caller's own?  The same owner asking again in the very
 * transaction of the grant (PostgreSQL expands (f(..)).* into a call a column),
 * or the nonce of a caller whose COMMIT was uncertain, for a minute.
 */
static bool
claim_is_askers(const Lease *lease, const Ask *ask, TimestampTz now)
{
	if (lease->ours && strcmp(lease->owner, ask->owner) == 0)
		return true;
	return ask->nonce != NULL && lease->nonce != NULL &&
		memcmp(ask->nonce, lease->nonce, sizeof(pg_uuid_t)) == 0 &&
		now - lease->granted_at <= EFFECT_NONCE_WINDOW;
}

/*
 * What overlap comes to, by the job's policy.  "queued" is still to be written
 * down by the caller.
 */
static const char *
claim_overlap(const Ask *ask, const Lease *lease)
{
	if (!ask->job.registered)
		return "held";
	if (ask->job.overlap == OVERLAP_COALESCE)
		return "coalesced";
	if (ask->job.overlap == OVERLAP_QUEUE)
		return "queued";
	if (!ask->may_wait)
		return "held";			/* claim_any goes on to the next job */
	stats_count(STATS_JOB, ask->job_key, COUNT_OVERLAPPED);
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_OVERLAP),
			 errmsg("job \"%s\" overlaps: a run is live", ask->job_key),
			 errdetail("Run " INT64_FORMAT " is held by %s since %s, until %s.", lease->token, lease->owner,
					   pstrdup(timestamptz_to_str(lease->granted_at)),
					   pstrdup(timestamptz_to_str(lease->until))),
			 errhint("Its policy is fail. Wait for that run, or end it with effect.revoke_lease().")));
	pg_unreachable();
}

/*
 * The answer that the lease as it stands gives without writing; false: it is
 * free or expired, and may be taken.
 */
static bool
claim_answer(SqlScope *scope, const Ask *ask, Lease *lease, Told *told)
{
	TimestampTz now;

	lease_read_in(scope, ask->job_key, lease);
	now = GetCurrentTimestamp();
	memset(told, 0, sizeof(*told));
	if (claim_is_live(lease, now))
	{
		told->holder = lease->owner;
		told->until = lease->until;
	}
	told->firing = ask->firing;
	if (claim_is_live(lease, now) && claim_is_askers(lease, ask, now) &&
		(told->asked = claim_asked_again(lease, ask)) != NULL)
	{
		told->verdict = "granted";
		told->token = lease->token;
		told->firing = lease->firing;
		return true;
	}
	if (firing_state(ask->job_key, ask->firing) == FIRING_FINISHED)
		told->verdict = "already_ran";
	else if (ask->job.paused)
		told->verdict = "paused";
	else if (claim_is_live(lease, now))
		told->verdict = claim_overlap(ask, lease);
	else if (lease->owner == NULL && lease->token != 0 && ask->job.at_least_for > 0 &&
			 now - lease->granted_at < ask->job.at_least_for)
		told->verdict = "cooling_down";
	return told->verdict != NULL;
}

/* The next token: above the last, and above every lost one. */
static int64
claim_next_token(SqlScope *scope, const Lease *lease)
{
	int64		token = Max(lease->token + 1, cluster_first_token(scope));

	if (token >= LEASE_MAX_TOKEN)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("fencing tokens of this job have reached 2^53")));
	return token;
}

/*
 * Which firing is granted: the one that has waited longest, if any waits; the
 * one that was passed then waits its turn.
 */
static const char *
claim_next_firing(SqlScope *scope, const Ask *ask, Told *told)
{
	const char *oldest = NULL;

	told->firing = ask->firing;
	told->asked = "granted";
	if (!claim_queues(ask) || !job_lock(ask->job_key))
		return told->firing;
	oldest = firing_oldest(scope, ask->job_key);
	if (oldest == NULL)
		return told->firing;
	firing_dequeue(ask->job_key, oldest);
	told->firing = oldest;
	if (ask->firing != NULL && strcmp(oldest, ask->firing) != 0)
		told->asked = firing_enqueue(ask->job_key, ask->firing, ask->job.queue_limit,
									 GetCurrentTimestamp()) == FIRING_QUEUED ? "queued" : "saturated";
	return oldest;
}

/* Write the grant: the lease row, and its run.  Under the job's lock. */
static void
claim_grant(SqlScope *scope, const Ask *ask, const Lease *lease, Told *told)
{
	TimestampTz now = GetCurrentTimestamp();
	const char *firing = claim_next_firing(scope, ask, told);
	Lease		grant = {.owner = unconstify(char *, ask->owner), .firing = unconstify(char *, firing),
		.nonce = ask->nonce, .lease_for = *ask->lease_for, .granted_at = now};

	told->verdict = "granted";
	told->token = grant.token = claim_next_token(scope, lease);
	told->until = grant.until = lease_end(now, ask->lease_for);
	told->holder = ask->owner;
	lease_grant(ask->job_key, &grant, lease->token == 0);
	stats_deed(STATS_JOB, ask->job_key, COUNT_GRANTED);
}

/* From here on to the end of this nest level a lock is waited for a second. */
static void
claim_bound_wait(void)
{
	if (LockTimeout == 0 || LockTimeout > LEASE_QUEUE_MS)
		(void) set_config_option("lock_timeout", CppAsString2(LEASE_QUEUE_MS), PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* The one queued claimer's wait */
typedef struct Queue
{
	uint64		hash;
	bool		got;
} Queue;

static void
claim_wait_in_queue(void *arg)
{
	Queue	   *queue = arg;
	int			nest;

	if (!lock_advisory(EFFECT_LOCK_QUEUE, queue->hash, ExclusiveLock, false))
		return;
	nest = NewGUCNestLevel();
	claim_bound_wait();
	queue->got = lock_advisory(EFFECT_LOCK_JOB, queue->hash, ExclusiveLock, true);
	AtEOXact_GUC(true, nest);
	unlock_advisory(EFFECT_LOCK_QUEUE, queue->hash, ExclusiveLock);
}

/*
 * claim_queue
 *		The lock is busy: a fenced commit in flight, a prepared transaction, or
 *		another claimer.  Queue behind it for a second, so that a storm of
 *		zombie commits cannot starve us.  Only a lock timeout and a deadlock
 *		mean "held"; cancels and everything else pass through.
 */
static bool
claim_queue(const char *job_key)
{
	Queue		queue = {.hash = lease_hash(job_key)};
	ErrorData  *error = sql_try(claim_wait_in_queue, &queue);

	if (error == NULL)
		return queue.got;
	if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
		error->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED)
		ReThrowError(error);
	FreeErrorData(error);
	return false;
}

/*
 * The registration that we hold was just given up by a release: at its COMMIT
 * row locks go before advisory ones, so the job's lock follows in a moment.  To
 * queue for it would be the wrong order of locks; to look again is not.
 */
static bool
claim_lock_shortly(const Ask *ask)
{
	for (int i = 0; i < CLAIM_LOOKS; i++)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(CLAIM_LOOK_EVERY);
		if (lease_lock(ask->job_key, ExclusiveLock, false))
			return true;
	}
	return false;
}

/*
 * Take the job's exclusive lock as a claim does; false: it stays busy.  First
 * the one that tells of grants in flight: a step to a new epoch by hand waits
 * for them, and no grant begins during one.
 */
static bool
claim_lock(const Ask *ask, bool may_wait)
{
	if (!lock_advisory(EFFECT_LOCK_EPOCH, 0, RowShareLock, false))
		return false;
	if (lease_lock(ask->job_key, ExclusiveLock, false))
		return true;
	if (may_wait && claim_queue(ask->job_key))
		return true;
	if (!may_wait && ask->may_wait && claim_lock_shortly(ask))
		return true;
	ereport(LOG,
			(errmsg("claim of job \"%s\" by %s answers held: its lock is busy",
					ask->job_key, ask->owner),
			 errdetail("A claim or a fenced commit is in flight, or a prepared transaction keeps it."),
			 errhint("See pg_locks (objsubid %d) and pg_prepared_xacts.", EFFECT_LOCK_JOB)));
	return false;
}

/* A registration to lock, and whether it was got */
typedef struct Lockable
{
	const char *job_key;
	bool		got;
} Lockable;

static void
claim_wait_for_registration(void *arg)
{
	Lockable   *job = arg;
	int			nest = NewGUCNestLevel();

	claim_bound_wait();
	job->got = job_lock(job->job_key);
	AtEOXact_GUC(true, nest);
}

/*
 * Lock the job's registration, which protects its queue, within a second; false:
 * it is busy (an open enqueue, an open set_job), or gone.  Never in a scope.
 */
static bool
claim_registration(const Ask *ask)
{
	Lockable	job = {.job_key = ask->job_key};
	ErrorData  *error = sql_try(claim_wait_for_registration, &job);

	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
		error->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED)
		ReThrowError(error);
	return error == NULL && job.got;
}

/* The firing waits its turn, or is dropped.  Under the registration's lock. */
static void
claim_write_queued(const Ask *ask, Told *told)
{
	SqlScope	scope;

	sql_open(&scope);
	told->verdict = firing_enqueue(ask->job_key, ask->firing, ask->job.queue_limit,
								   GetCurrentTimestamp()) == FIRING_SATURATED ? "saturated" : "queued";
	sql_close(&scope);
}

/*
 * Let the firing wait its turn.  Under the lock of the job's registration the
 * lease is read again: false, if it is free by now and may be taken.
 */
static bool
claim_enqueue(const Ask *ask, Told *told)
{
	SqlScope	scope;
	Lease		lease;
	bool		answered;

	if (!claim_registration(ask))
	{
		told->verdict = "held";
		return true;
	}
	sql_open(&scope);
	answered = claim_answer(&scope, ask, &lease, told);
	sql_close(&scope);
	if (answered && strcmp(told->verdict, "queued") == 0)
		claim_write_queued(ask, told);
	return answered;
}

/*
 * Under the job's lock: look again, and take the lease if it is to be had.  The
 * registration's lock comes after the job's.
 */
static void
claim_locked(const Ask *ask, Told *told)
{
	SqlScope	scope;
	Lease		lease;
	bool		answered;

	if (claim_queues(ask) && !claim_registration(ask))
	{
		told->verdict = "held";
		return;
	}
	sql_open(&scope);
	answered = claim_answer(&scope, ask, &lease, told);
	if (!answered)
	{
		if (lease.owner != NULL)
		{
			lease_take_away(ask->job_key, &lease, "abandoned", "stolen",
							psprintf("taken by %s", ask->owner));
			stats_deed(STATS_JOB, ask->job_key, COUNT_STOLEN);
		}
		claim_grant(&scope, ask, &lease, told);
		cluster_flush_commit();
	}
	sql_close(&scope);
	if (answered && strcmp(told->verdict, "queued") == 0)
		claim_write_queued(ask, told);
	if (told->token != 0)
		told->checkpoint = checkpoint_read(ask->job_key, told->firing, ask->job.checkpoint_carries);
}

/*
 * claim_decide
 *		The whole of a claim.  A live lease answers from one read: nothing is
 *		written, no transaction id assigned (unless the firing is to wait).
 *		Only a free or an expired one takes the lock, reads again, and writes.
 */
static void
claim_decide(const Ask *ask, Told *told)
{
	SqlScope	scope;
	Lease		lease;
	bool		answered;
	bool		enqueuing = false;

	sql_open(&scope);
	answered = claim_answer(&scope, ask, &lease, told);
	sql_close(&scope);
	if (answered && strcmp(told->verdict, "queued") == 0)
	{
		enqueuing = true;		/* it holds the registration, which grants want after the job */
		answered = claim_enqueue(ask, told);
	}
	if (answered)
		return;
	if (cluster_quarantined())
		told->verdict = "quarantined";
	else if (claim_lock(ask, ask->may_wait && !enqueuing))
		claim_locked(ask, told);
	else if (enqueuing)
		claim_write_queued(ask, told);	/* whoever has the job's lock will find it */
	else
		told->verdict = "held";
}

/* A claim, and what it was told counted; grants and the queue count themselves. */
static void
claim_job(const Ask *ask, Told *told)
{
	static const struct
	{
		const char *verdict;
		Counter		counter;
	}			refusals[] = {
		{"held", COUNT_HELD}, {"coalesced", COUNT_COALESCED}, {"already_ran", COUNT_ALREADY_RAN},
		{"cooling_down", COUNT_COOLING_DOWN}, {"paused", COUNT_PAUSED}, {"quarantined", COUNT_QUARANTINED}
	};

	claim_decide(ask, told);
	for (int i = 0; i < lengthof(refusals); i++)
		if (strcmp(told->verdict, refusals[i].verdict) == 0)
			stats_count(STATS_JOB, ask->job_key, refusals[i].counter);
}

/*
 * Fill the columns that claim_lease and claim_any share, from "at" on.  The
 * values point into the caller's memory.
 */
static void
claim_told_columns(TupleDesc desc, const Told *told, const char *asked_firing, int at,
				   Datum *values, bool *nulls)
{
	Oid			verdict_type = TupleDescAttr(desc, at)->atttypid;

	values[at] = enum_datum(verdict_type, told->verdict);
	values[at + 1] = Int64GetDatum(told->token);
	nulls[at + 1] = told->token == 0;
	values[at + 2] = TimestampTzGetDatum(told->until);
	nulls[at + 2] = told->until == 0;
	values[at + 3] = told->holder ? CStringGetTextDatum(told->holder) : (Datum) 0;
	nulls[at + 3] = told->holder == NULL;
	values[at + 4] = told->firing ? CStringGetTextDatum(told->firing) : (Datum) 0;
	nulls[at + 4] = told->firing == NULL;
	values[at + 5] = told->asked ? enum_datum(verdict_type, told->asked) : values[at];
	nulls[at + 5] = asked_firing == NULL;
	values[at + 6] = JsonbPGetDatum(told->checkpoint);
	nulls[at + 6] = told->checkpoint == NULL;
}

/* How long the lease lasts: as the caller says, or as the job is registered. */
static Interval *
claim_lease_for(const Job *job, Interval *passed)
{
	Interval   *lease_for = passed ? passed : job->lease_for;

	if (lease_for == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lease_for must not be NULL: this job is not registered with one"),
				 errhint("Say how long the lease lasts without a renewal, for example '5 minutes'.")));
	(void) lease_end(GetCurrentTimestamp(), lease_for);
	return lease_for;
}

/* What the job's registration says about this claim. */
static void
claim_as_registered(Ask *ask, Interval *lease_for)
{
	job_get(ask->job_key, &ask->job);
	ask->lease_for = claim_lease_for(&ask->job, lease_for);
	if (claim_queues(ask) && ask->firing == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("job \"%s\" queues: its claims need a firing", ask->job_key),
				 errhint("Pass firing => effect.firing_of(job_key), or your own name of the moment.")));
}

/*
 * effect.claim_lease(job_key, owner, lease_for, firing, nonce) -> one row
 *		Rules: doc/lease.md.  Errors: 22004, 22023, 25006.
 */
Datum
effect_claim_lease(PG_FUNCTION_ARGS)
{
	Ask			ask = {.may_wait = true};
	Told		told;
	TupleDesc	desc;
	Datum		values[7];
	bool		nulls[7] = {false};

	ask.job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	ask.owner = arg_text(fcinfo, 1, "owner", EFFECT_MAX_LABEL);
	ask.firing = arg_text_or_null(fcinfo, 3, "firing", EFFECT_MAX_LABEL);
	ask.nonce = PG_ARGISNULL(4) ? NULL : PG_GETARG_UUID_P(4);
	claim_as_registered(&ask, PG_ARGISNULL(2) ? NULL : PG_GETARG_INTERVAL_P(2));
	begin_writing("effect.claim_lease()");

	claim_job(&ask, &told);
	desc = call_result_type(fcinfo);
	claim_told_columns(desc, &told, ask.firing, 0, values, nulls);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

/*
 * claim_for_run
 *		A claim as run_job makes it: of a registered job, with its lease_for.
 *		The verdict; the token is 0 where it is not granted.
 */
const char *
claim_for_run(const char *job_key, const char *owner, const char *firing, int64 *token,
			  char **granted, Jsonb **checkpoint)
{
	Ask			ask = {.job_key = job_key, .owner = owner, .firing = firing, .may_wait = true};
	Told		told;

	claim_as_registered(&ask, NULL);
	claim_job(&ask, &told);
	*token = told.token;
	*granted = told.firing ? pstrdup(told.firing) : NULL;
	*checkpoint = told.checkpoint;
	return told.verdict;
}

/*
 * Ask for each job in turn until one is granted.  Otherwise "told" holds the
 * live lease that ends first, which is when asking again makes sense.
 */
static const char *
claim_first(Ask *ask, char **keys, int n, Interval *lease_for, Told *told)
{
	memset(told, 0, sizeof(*told));
	told->verdict = "held";
	for (int i = 0; i < n; i++)
	{
		Told		one;

		ask->job_key = keys[i];
		claim_as_registered(ask, lease_for);
		claim_job(ask, &one);
		if (one.token != 0)
		{
			*told = one;
			return ask->job_key;
		}
		if (strcmp(one.verdict, "quarantined") == 0)
			told->verdict = one.verdict;
		if (told->until == 0 || (one.until != 0 && one.until < told->until))
		{
			told->until = one.until;
			told->holder = one.holder;
		}
	}
	return NULL;
}

/*
 * effect.claim_any(job_keys, owner, lease_for) -> one row
 *		The first of them that is free, one lease at most; it never queues.
 *		Errors: as claim_lease, and 22023 for an empty array.
 */
Datum
effect_claim_any(PG_FUNCTION_ARGS)
{
	Ask			ask = {.may_wait = false};
	Told		told;
	const char *job_key;
	char	  **keys;
	int			n;
	TupleDesc	desc;
	Datum		values[8];
	bool		nulls[8] = {false};

	keys = arg_text_array(fcinfo, 0, "job_keys", EFFECT_MAX_KEY, &n);
	ask.owner = arg_text(fcinfo, 1, "owner", EFFECT_MAX_LABEL);
	begin_writing("effect.claim_any()");

	job_key = claim_first(&ask, keys, n, PG_ARGISNULL(2) ? NULL : PG_GETARG_INTERVAL_P(2), &told);
	desc = call_result_type(fcinfo);
	values[0] = job_key ? CStringGetTextDatum(job_key) : (Datum) 0;
	nulls[0] = job_key == NULL;
	claim_told_columns(desc, &told, NULL, 1, values, nulls);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
