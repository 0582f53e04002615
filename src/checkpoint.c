/*
 * checkpoint.c
 *	  Where a long job goes on: saved with the batch's own writes, fenced.
 *
 * A checkpoint is one row a firing or, where it carries over and where there are
 * no firings, one row a job (firing empty).  The job's fence protects it: a save
 * commits only while the token is current, so batch and checkpoint are both
 * there or neither.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "direct.h"

PG_FUNCTION_INFO_V1(effect_save_checkpoint);
PG_FUNCTION_INFO_V1(effect_get_checkpoint);

static SqlPlan checkpoint_select = {
	"SELECT state FROM effect.checkpoint WHERE job_key OPERATOR(pg_catalog.=) $1"
	" AND firing OPERATOR(pg_catalog.=) $2",
	2, {TEXTOID, TEXTOID}
};

static SqlPlan checkpoint_select_last = {
	"SELECT state FROM effect.checkpoint WHERE job_key OPERATOR(pg_catalog.=) $1"
	" ORDER BY saved_at DESC LIMIT 1",
	1, {TEXTOID}
};

static SqlPlan checkpoint_upsert = {
	"INSERT INTO effect.checkpoint (job_key, firing, fencing_token, state, saved_at)"
	" VALUES ($1, $2, $3, $4, $5) ON CONFLICT (job_key, firing) DO UPDATE"
	" SET fencing_token = $3, state = $4, saved_at = $5",
	5, {TEXTOID, TEXTOID, INT8OID, JSONBOID, TIMESTAMPTZOID}
};

static SqlPlan checkpoint_delete = {
	"DELETE FROM effect.checkpoint WHERE job_key OPERATOR(pg_catalog.=) $1"
	" AND firing OPERATOR(pg_catalog.=) $2",
	2, {TEXTOID, TEXTOID}
};

/* The columns of effect.checkpoint */
enum
{
	CHECKPOINT_JOB_KEY,
	CHECKPOINT_FIRING,
	CHECKPOINT_TOKEN,
	CHECKPOINT_STATE,
	CHECKPOINT_SAVED_AT,
	CHECKPOINT_COLUMNS
};

static const char *const checkpoint_names[CHECKPOINT_COLUMNS] = {
	"job_key", "firing", "fencing_token", "state", "saved_at"
};

static DirectTable checkpoint_table = {"checkpoint", "checkpoint_pkey", 2, CHECKPOINT_COLUMNS, checkpoint_names};

/* Whose checkpoint it is: this firing's, or (empty) the job's. */
static void
checkpoint_args(SqlArgs *args, const char *job_key, const char *firing, bool carries)
{
	sql_arg_text(args, job_key);
	sql_arg_text(args, carries || firing == NULL ? "" : firing);
}

/*
 * Look without a statement, since most runs have none.  false: not directly;
 * else *state is what is there, in the caller's memory.
 */
static bool
checkpoint_look(const char *job_key, const char *firing, bool carries, Jsonb **state)
{
	Datum		key[] = {CStringGetTextDatum(job_key),
	CStringGetTextDatum(carries || firing == NULL ? "" : firing)};

	*state = NULL;
	if (!direct_begin(&checkpoint_table, AccessShareLock))
		return false;
	if (direct_find(&checkpoint_table, key, LOCK_NONE))
		*state = DatumGetJsonbPCopy(checkpoint_table.value[CHECKPOINT_STATE]);
	direct_end(&checkpoint_table);
	return true;
}

/* Where a run of this firing goes on; NULL: from the start. */
Jsonb *
checkpoint_read(const char *job_key, const char *firing, bool carries)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	Jsonb	   *state;

	if (checkpoint_look(job_key, firing, carries, &state))
		return state;
	sql_open(&scope);
	checkpoint_args(&args, job_key, firing, carries);
	if (sql_read(&checkpoint_select, &args) > 0)
		state = sql_column_jsonb(&scope, 1);
	sql_close(&scope);
	return state;
}

/* Write or (NULL) clear it.  The caller is fenced, or holds the job's lock. */
void
checkpoint_write(const char *job_key, const char *firing, bool carries, int64 token, Jsonb *state)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	Jsonb	   *before;

	if (state == NULL && checkpoint_look(job_key, firing, carries, &before) && before == NULL)
		return;					/* nothing to clear */
	sql_open(&scope);
	checkpoint_args(&args, job_key, firing, carries);
	if (state != NULL)
	{
		sql_arg(&args, Int64GetDatum(token), false);
		sql_arg_jsonb(&args, state);
		sql_arg_time(&args, GetCurrentTimestamp());
	}
	(void) sql_write(state != NULL ? &checkpoint_upsert : &checkpoint_delete, &args);
	sql_close(&scope);
}

/*
 * effect.save_checkpoint(job_key, fencing_token, state) -> boolean
 *		false: fenced, nothing written.  NULL clears.  Errors: 22004, 22023,
 *		25006, 54000, LE003; LE001 at COMMIT.
 */
Datum
effect_save_checkpoint(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	int64		token = arg_token(fcinfo, 1);
	Jsonb	   *state = arg_jsonb(fcinfo, 2, "state");
	Lease		lease;
	Job			job;

	begin_writing("effect.save_checkpoint()");
	if (!lease_accepts(job_key, token, &lease))
	{
		lease_refused(job_key, token, "save_checkpoint");
		PG_RETURN_BOOL(false);
	}
	fence_add(job_key, token);
	job_get_any(job_key, &job);
	checkpoint_write(job_key, lease.firing, job.checkpoint_carries, token, state);
	PG_RETURN_BOOL(true);
}

/*
 * effect.get_checkpoint(job_key) -> jsonb
 *		The one that was saved last, for a look.  NULL: none.  22004, 22023.
 */
Datum
effect_get_checkpoint(PG_FUNCTION_ARGS)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	Jsonb	   *state = NULL;

	sql_arg_text(&args, arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY));
	sql_open(&scope);
	if (sql_read(&checkpoint_select_last, &args) > 0)
		state = sql_column_jsonb(&scope, 1);
	sql_close(&scope);
	if (state == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(state);
}
