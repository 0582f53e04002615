/*
 * run.c
 *	  The history of leases: a row a grant, and how it ended.
 *
 * (job_key, fencing_token) names a run.  Its row is written by the grant and
 * closed once, both under the job's lock; only one that was abandoned may turn
 * out to be fenced.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "direct.h"

static SqlPlan run_insert = {
	"INSERT INTO effect.run (job_key, fencing_token, owner, firing, started_at, role_name,"
	" application_name, client_addr) VALUES ($1, $2, $3, $4, $5, SESSION_USER,"
	" pg_catalog.current_setting('application_name'), pg_catalog.inet_client_addr())",
	5, {TEXTOID, INT8OID, TEXTOID, TEXTOID, TIMESTAMPTZOID}
};

static SqlPlan run_update_end = {
	"UPDATE effect.run SET outcome = $3::effect.run_outcome, ended_at = $4, detail = $5"
	" WHERE job_key OPERATOR(pg_catalog.=) $1 AND fencing_token OPERATOR(pg_catalog.=) $2"
	" AND outcome OPERATOR(pg_catalog.=) 'running'::effect.run_outcome",
	5, {TEXTOID, INT8OID, TEXTOID, TIMESTAMPTZOID, JSONBOID}
};

static SqlPlan run_select_outcome = {
	"SELECT outcome::pg_catalog.text FROM effect.run WHERE job_key OPERATOR(pg_catalog.=) $1"
	" AND fencing_token OPERATOR(pg_catalog.=) $2",
	2, {TEXTOID, INT8OID}
};

static SqlPlan run_update_fenced = {
	"UPDATE effect.run SET outcome = 'fenced'::effect.run_outcome"
	" WHERE job_key OPERATOR(pg_catalog.=) $1 AND fencing_token OPERATOR(pg_catalog.=) $2"
	" AND outcome OPERATOR(pg_catalog.=) 'abandoned'::effect.run_outcome",
	2, {TEXTOID, INT8OID}
};

/* The columns of effect.run */
enum
{
	RUN_JOB_KEY,
	RUN_TOKEN,
	RUN_OWNER,
	RUN_FIRING,
	RUN_OUTCOME,
	RUN_STARTED_AT,
	RUN_ENDED_AT,
	RUN_DETAIL,
	RUN_ROLE_NAME,
	RUN_APPLICATION_NAME,
	RUN_CLIENT_ADDR,
	RUN_COLUMNS
};

static const char *const run_names[RUN_COLUMNS] = {
	"job_key", "fencing_token", "owner", "firing", "outcome", "started_at", "ended_at", "detail",
	"role_name", "application_name", "client_addr"
};

static DirectTable run_table = {"run", "run_pkey", 2, RUN_COLUMNS, run_names};

static void
run_set_outcome(const char *outcome)
{
	direct_set(&run_table, RUN_OUTCOME, enum_datum(direct_type(&run_table, RUN_OUTCOME), outcome), false);
}

/* Insert the run of a grant; false: not directly. */
static bool
run_write_start(const char *job_key, const Lease *grant)
{
	LOCAL_FCINFO(call, 0);
	NameData	role;
	Datum		address;

	if (!direct_begin(&run_table, RowExclusiveLock))
		return false;
	namestrcpy(&role, GetUserNameFromId(GetSessionUserId(), false));
	InitFunctionCallInfoData(*call, NULL, 0, InvalidOid, NULL, NULL);
	address = inet_client_addr(call);
	direct_set_text(&run_table, RUN_JOB_KEY, job_key);
	direct_set(&run_table, RUN_TOKEN, Int64GetDatum(grant->token), false);
	direct_set_text(&run_table, RUN_OWNER, grant->owner);
	direct_set_text(&run_table, RUN_FIRING, grant->firing);
	run_set_outcome("running");
	direct_set(&run_table, RUN_STARTED_AT, TimestampTzGetDatum(grant->granted_at), false);
	direct_set(&run_table, RUN_ENDED_AT, (Datum) 0, true);
	direct_set(&run_table, RUN_DETAIL, (Datum) 0, true);
	direct_set(&run_table, RUN_ROLE_NAME, NameGetDatum(&role), false);
	direct_set_text(&run_table, RUN_APPLICATION_NAME, application_name);
	direct_set(&run_table, RUN_CLIENT_ADDR, address, call->isnull);
	direct_insert(&run_table);
	direct_end(&run_table);
	return true;
}

/* End a run that is still running; false: not directly. */
static bool
run_write_end(const char *job_key, int64 token, const char *outcome, Jsonb *detail)
{
	Datum		key[] = {CStringGetTextDatum(job_key), Int64GetDatum(token)};

	if (!direct_begin(&run_table, RowExclusiveLock))
		return false;
	if (direct_find(&run_table, key, LOCK_CHANGE) &&
		run_table.value[RUN_OUTCOME] == enum_datum(direct_type(&run_table, RUN_OUTCOME), "running"))
	{
		run_set_outcome(outcome);
		direct_set(&run_table, RUN_ENDED_AT, TimestampTzGetDatum(GetCurrentTimestamp()), false);
		direct_set(&run_table, RUN_DETAIL, JsonbPGetDatum(detail), detail == NULL);
		direct_update(&run_table);
	}
	direct_end(&run_table);
	return true;
}

/* Write the run of a grant.  Inside a scope. */
void
run_start(const char *job_key, const Lease *grant)
{
	SqlArgs		args = {0};

	if (run_write_start(job_key, grant))
		return;
	sql_arg_text(&args, job_key);
	sql_arg(&args, Int64GetDatum(grant->token), false);
	sql_arg_text(&args, grant->owner);
	sql_arg_text(&args, grant->firing);
	sql_arg_time(&args, grant->granted_at);
	(void) sql_write(&run_insert, &args);
}

/* Close a run that is still running; its detail is optional.  Inside a scope. */
void
run_close(const char *job_key, int64 token, const char *outcome, Jsonb *detail)
{
	SqlArgs		args = {0};

	if (run_write_end(job_key, token, outcome, detail))
		return;
	sql_arg_text(&args, job_key);
	sql_arg(&args, Int64GetDatum(token), false);
	sql_arg_text(&args, outcome);
	sql_arg_time(&args, GetCurrentTimestamp());
	sql_arg_jsonb(&args, detail);
	(void) sql_write(&run_update_end, &args);
}

/* Did this run already end so?  Then a repeated release is no news. */
bool
run_ended_so(const char *job_key, int64 token, const char *outcome)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	char	   *found = NULL;

	sql_open(&scope);
	sql_arg_text(&args, job_key);
	sql_arg(&args, Int64GetDatum(token), false);
	if (sql_read(&run_select_outcome, &args) > 0)
		found = sql_column_text(&scope, 1);
	sql_close(&scope);
	return found != NULL && strcmp(found, outcome) == 0;
}

/*
 * The run of a superseded token was heard of.  true: it had been written off as
 * abandoned, and is fenced from now on.  Inside a scope.
 */
bool
run_came_back(const char *job_key, int64 token)
{
	SqlArgs		args = {0};

	sql_arg_text(&args, job_key);
	sql_arg(&args, Int64GetDatum(token), false);
	return sql_write(&run_update_fenced, &args) > 0;
}
