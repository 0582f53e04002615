/*
 * fence.c
 *	  A transaction that says whose it is commits only while that is true.
 *
 * The fences of the current transaction are a list in TopTransactionContext,
 * each with the subtransaction that took it: a rolled-back savepoint forgets
 * its own, a released one hands them to its parent.  At PRE_COMMIT and
 * PRE_PREPARE, for each job in key order, the job's lock is taken in RowShare
 * mode and the lease read with a latest snapshot, whatever the isolation
 * level.  The lock is kept to the end of the commit, so no grant can slip in
 * between; until then nothing is locked, so a hung holder delays nobody.  A
 * prepared transaction keeps the lock and nothing else.
 *
 * Transaction callbacks run last-registered first, and postgres_fdw commits its
 * remote side in its own.  Each fence therefore registers ours anew, so that
 * the check comes before any remote commit of a connection already open.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_fence);
PG_FUNCTION_INFO_V1(effect_is_current);

typedef struct Fence
{
	struct Fence *next;
	SubTransactionId taken_in;
	int64		token;
	char		job_key[FLEXIBLE_ARRAY_MEMBER];
} Fence;

static Fence *fences = NULL;	/* of this transaction */
static bool fence_listens = false;	/* subtransaction callback registered */

/* LE001: as the call's answer, or as the commit's.  Counted in memory: nothing is written here. */
static void
fence_raise(const char *job_key, int64 token, const Lease *lease, const char *what)
{
	stats_fenced(job_key, token, what);
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_FENCED),
			 errmsg("fenced: token " INT64_FORMAT " of job \"%s\" is superseded", token, job_key),
			 lease->owner
			 ? errdetail("The job's token is " INT64_FORMAT ", held by %s until %s.", lease->token,
						 lease->owner, timestamptz_to_str(lease->until))
			 : errdetail("The job's latest token is " INT64_FORMAT "; nobody holds it now.",
						 lease->token),
			 errhint("Stop. This run has lost its lease; retrying under this token fails again.")));
}

/*
 * Is the token still its job's?  A lease that this very transaction has
 * released is the normal end of a run, and counts as current.
 */
static void
fence_check(const Fence *fence)
{
	Lease		lease;

	(void) lease_lock(fence->job_key, RowShareLock, true);
	lease_read(fence->job_key, &lease);
	if (lease_standing(&lease, fence->token) == TOKEN_CURRENT)
		return;
	if (lease.token == fence->token && lease.owner == NULL && lease.ours)
		return;
	fence_raise(fence->job_key, fence->token, &lease, "COMMIT");
}

static int
fence_compare(const void *a, const void *b)
{
	return strcmp((*(Fence *const *) a)->job_key, (*(Fence *const *) b)->job_key);
}

/* Check every fence, in key order so that two commits cannot deadlock. */
static void
fence_check_all(void)
{
	int			n = 0;
	Fence	  **sorted;

	for (Fence *fence = fences; fence != NULL; fence = fence->next)
		n++;
	if (n == 0)
		return;
	sorted = palloc(n * sizeof(Fence *));
	n = 0;
	for (Fence *fence = fences; fence != NULL; fence = fence->next)
		sorted[n++] = fence;
	qsort(sorted, n, sizeof(Fence *), fence_compare);
	for (int i = 0; i < n; i++)
		fence_check(sorted[i]);
	pfree(sorted);
}

static void
fence_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			fence_check_all();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			fences = NULL;		/* their memory ends with the transaction */
			break;
		default:
			break;
	}
}

/* A released savepoint's fences are its parent's; a rolled-back one's are gone. */
static void
fence_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	Fence	  **link = &fences;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	while (*link != NULL)
	{
		Fence	   *fence = *link;

		if (fence->taken_in == mine && event == SUBXACT_EVENT_ABORT_SUB)
		{
			*link = fence->next;
			pfree(fence);
			continue;
		}
		if (fence->taken_in == mine)
			fence->taken_in = parent;
		link = &fence->next;
	}
}

/*
 * fence_add
 *		From now on this transaction commits only under this token.  A fence
 *		already in the list was taken here or further out, and lasts at least
 *		as long as a new one would.
 */
void
fence_add(const char *job_key, int64 token)
{
	Fence	   *fence;

	if (!fence_listens)
		RegisterSubXactCallback(fence_subxact_callback, NULL);
	fence_listens = true;
	UnregisterXactCallback(fence_xact_callback, NULL);
	RegisterXactCallback(fence_xact_callback, NULL);

	for (fence = fences; fence != NULL; fence = fence->next)
		if (fence->token == token && strcmp(fence->job_key, job_key) == 0)
			return;
	fence = MemoryContextAlloc(TopTransactionContext, offsetof(Fence, job_key) + strlen(job_key) + 1);
	fence->taken_in = GetCurrentSubTransactionId();
	fence->token = token;
	strcpy(fence->job_key, job_key);
	fence->next = fences;
	fences = fence;
}

/* Is this transaction fenced, for this job or (NULL) for any? */
bool
fence_taken(const char *job_key)
{
	for (Fence *fence = fences; fence != NULL; fence = fence->next)
		if (job_key == NULL || strcmp(fence->job_key, job_key) == 0)
			return true;
	return false;
}

/*
 * effect.fence(job_key, fencing_token) -> void
 *		Errors: LE001 superseded, LE003 never committed here, 22004, 22023,
 *		25006; and LE001 at COMMIT or PREPARE, if it is superseded by then.
 */
Datum
effect_fence(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	int64		token = arg_token(fcinfo, 1);
	Lease		lease;

	begin_writing("effect.fence()");
	if (!lease_accepts(job_key, token, &lease))
		fence_raise(job_key, token, &lease, "fence");
	fence_add(job_key, token);
	PG_RETURN_VOID();
}

/*
 * effect.is_current(job_key, fencing_token) -> boolean
 *		For a WHERE clause.  Where nothing can be written (READ ONLY, a standby)
 *		it only answers.  Errors: LE003, 22004, 22023; LE001 at COMMIT.
 */
Datum
effect_is_current(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	int64		token = arg_token(fcinfo, 1);
	Lease		lease;

	if (!XactReadOnly)
		begin_writing("effect.is_current()");
	if (!lease_accepts(job_key, token, &lease))
	{
		stats_fenced(job_key, token, "is_current");
		PG_RETURN_BOOL(false);
	}
	if (!XactReadOnly)
		fence_add(job_key, token);
	PG_RETURN_BOOL(true);
}
