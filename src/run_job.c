/*
 * run_job.c
 *	  CALL effect.run_job(): a job that is plain SQL, from pg_cron or by hand.
 *
 * It claims and commits; runs the command in a transaction fenced with the
 * token, again and again while it returns a checkpoint; records the outcome,
 * releases and commits; then drains the queue.  The command itself runs
 * atomically, so a statement that outlives its lease is refused at COMMIT.
 *
 * Between transactions nothing survives but the Run struct, which lives in a
 * memory context of its own under the portal's.  An error in the command aborts
 * the transaction, is recorded on the run, and is raised again, so that pg_cron
 * logs a failure.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_run_job);

/* One run of the job; in the memory of run_job's own SPI connection */
typedef struct Run
{
	char	   *job_key;
	char	   *command;
	char	   *firing;			/* as granted */
	int64		token;
	Jsonb	   *checkpoint;
	bool		carries;		/* the checkpoint is the job's, not the firing's */
	bool		goes_on;		/* the last batch returned a checkpoint */
	MemoryContext memory;
} Run;

/* End this transaction and begin the next one, with a snapshot to work under. */
static void
run_commit(void)
{
	SPI_commit();
	EnsurePortalSnapshotExists();
}

/* Only where transactions may be ended: not in a block, not in a function. */
static void
run_check_context(FunctionCallInfo fcinfo)
{
	if (fcinfo->context != NULL && IsA(fcinfo->context, CallContext) &&
		!castNode(CallContext, fcinfo->context)->atomic)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
			 errmsg("effect.run_job() cannot be called inside a transaction"),
			 errhint("CALL it by itself: it commits the claim before it runs the command.")));
}

/* The jsonb that the command returned in its first row and column, if any. */
static Jsonb *
run_returned(Run *run)
{
	SqlScope	scope = {.caller = run->memory};

	if (SPI_tuptable == NULL || SPI_processed == 0 ||
		SPI_gettypeid(SPI_tuptable->tupdesc, 1) != JSONBOID)
		return NULL;
	return sql_column_jsonb(&scope, 1);
}

/* One batch: the command under a fence, and its checkpoint with it. */
static void
run_batch(void *arg)
{
	Run		   *run = arg;
	Oid			types[3] = {INT8OID, TEXTOID, JSONBOID};
	Datum		values[3] = {Int64GetDatum(run->token),
		run->firing ? CStringGetTextDatum(run->firing) : (Datum) 0,
	JsonbPGetDatum(run->checkpoint)};
	char		nulls[4] = {' ', run->firing ? ' ' : 'n', run->checkpoint ? ' ' : 'n', '\0'};
	int			result;
	Jsonb	   *next;

	fence_add(run->job_key, run->token);
	SPI_connect();
	result = SPI_execute_with_args(run->command, 3, types, values, nulls, false, 0);
	if (result < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("run_job cannot run this command: %s", SPI_result_code_string(result)),
				 errhint("The command is SQL that may run inside a transaction.")));
	next = run_returned(run);
	SPI_finish();
	run->goes_on = next != NULL;
	if (!run->goes_on)
		return;
	checkpoint_write(run->job_key, run->firing, run->carries, run->token, next);
	run->checkpoint = next;
}

/* What the run is told of its error, as its detail. */
static Jsonb *
run_error_detail(const ErrorData *error)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"error\": ");
	escape_json(&json, error->message);
	appendStringInfo(&json, ", \"sqlstate\": \"%s\"}", unpack_sql_state(error->sqlerrcode));
	return jsonb_from_text(json.data);
}

/*
 * Commit a batch; what that raises (LE001 where the lease was lost meanwhile, a
 * deferred constraint) has ended the transaction, and a new one has begun.
 */
static ErrorData *
run_try_commit(Run *run)
{
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		SPI_commit();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(run->memory);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(run->memory);
	EnsurePortalSnapshotExists();
	return error;
}

/* Between batches the lease is renewed, in a transaction of its own. */
static void
run_renew(Run *run)
{
	bool		lost = lease_renew(run->job_key, run->token, NULL) == 0;

	run_commit();
	if (lost)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_FENCED),
				 errmsg("fenced: run " INT64_FORMAT " of job \"%s\" lost its lease between two batches",
						run->token, run->job_key),
				 errhint("Another run has the job and goes on from the checkpoint.")));
}

/* The command failed: record it on the run, release, and raise it again. */
static void
run_failed(Run *run, ErrorData *error)
{
	(void) lease_release(run->job_key, run->token, "failed", run_error_detail(error));
	run_commit();
	ReThrowError(error);
}

/* All batches of one run, each in a transaction of its own. */
static void
run_granted(Run *run)
{
	do
	{
		ErrorData  *error = sql_try(run_batch, run);

		if (error == NULL)
			error = run_try_commit(run);
		if (error != NULL)
			run_failed(run, error);
		if (run->goes_on)
			run_renew(run);
		CHECK_FOR_INTERRUPTS();
	} while (run->goes_on);
	if (!lease_release(run->job_key, run->token, "finished", NULL))
		ereport(NOTICE,
				(errmsg("run " INT64_FORMAT " of job \"%s\" finished, but its lease was lost meanwhile",
						run->token, run->job_key)));
	run_commit();
}

/* The oldest firing that waits for this job; NULL: none. */
static char *
run_next_queued(const char *job_key, MemoryContext memory)
{
	SqlScope	scope;
	char	   *firing;

	sql_open(&scope);
	firing = firing_oldest(&scope, job_key);
	sql_close(&scope);
	return firing ? MemoryContextStrdup(memory, firing) : NULL;
}

/*
 * CALL effect.run_job(job_key, command, firing, owner)
 *		A verdict other than granted is a NOTICE.  Errors: 22004, 22023, 25006,
 *		2D000 (inside a transaction), LE002, LE003; whatever the command raises,
 *		after it has been recorded; LE001 where the lease was lost meanwhile.
 */
Datum
effect_run_job(PG_FUNCTION_ARGS)
{
	Run			run = {0};
	Job			job;
	char	   *firing;
	char	   *owner;

	run_check_context(fcinfo);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	run.memory = CurrentMemoryContext;
	run.job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	run.command = arg_text(fcinfo, 1, "command", EFFECT_MAX_BODY);
	firing = arg_text_or_null(fcinfo, 2, "firing", EFFECT_MAX_LABEL);
	owner = arg_text_or_null(fcinfo, 3, "owner", EFFECT_MAX_LABEL);
	if (owner == NULL)
		owner = psprintf("run_job, pid %d", MyProcPid);
	begin_writing("effect.run_job()");
	job_get(run.job_key, &job);
	run.carries = job.checkpoint_carries;
	if (firing == NULL)
		firing = job_firing(run.job_key, GetCurrentTimestamp());
	do
	{
		const char *verdict = claim_for_run(run.job_key, owner, firing, &run.token, &run.firing,
											&run.checkpoint);

		run_commit();
		if (run.token == 0)
		{
			ereport(NOTICE, (errmsg("job \"%s\": %s", run.job_key, verdict)));
			break;
		}
		run_granted(&run);
		firing = run_next_queued(run.job_key, run.memory);
	} while (firing != NULL);
	SPI_finish();
	PG_RETURN_VOID();
}
