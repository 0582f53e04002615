/*
 * resolver.c
 *	  Who looks at the far side: registered functions, called by sweep, and
 *	  pollers outside, served by next_unknown.
 *
 * A resolver runs in a subtransaction as the role that registered it, in a
 * security-restricted operation, with search_path pg_catalog, pg_temp unless it
 * sets its own.  No ledger row is locked meanwhile, so its finding is checked
 * against the attempt again afterwards.  What it raises counts as cannot_tell;
 * a cancel, a timeout and a shutdown pass through.  Nothing lives here between
 * calls.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_next_unknown);

/* Unknown, past its settle and its next check, and somebody is to look. */
#define RESOLVER_DUE \
	" FROM effect.unknown AS u" \
	" JOIN effect.ledger AS l ON l.effect_key OPERATOR(pg_catalog.=) u.effect_key" \
	" LEFT JOIN effect.action AS a ON a.action OPERATOR(pg_catalog.=) l.action" \
	" WHERE u.next_check OPERATOR(pg_catalog.<=) $1" \
	" AND l.state OPERATOR(pg_catalog.=) 'unknown'::effect.effect_state" \
	" AND COALESCE(a.on_unknown OPERATOR(pg_catalog.<>) 'drop'::effect.unknown_policy, true)" \
	" AND COALESCE(l.submitted_at OPERATOR(pg_catalog.+)" \
	"   COALESCE(a.settle, pg_catalog.make_interval(secs => $2)) OPERATOR(pg_catalog.<=) $1, true)"

static SqlPlan resolver_select_due = {
	"SELECT u.effect_key" RESOLVER_DUE " AND a.resolver IS NOT NULL"
	" ORDER BY u.since, u.effect_key LIMIT $3",
	3, {TIMESTAMPTZOID, FLOAT8OID, INT4OID}
};

static SqlPlan resolver_select_next = {
	"SELECT u.effect_key, l.action, l.target, l.inputs, l.attempt, l.submitted_at, u.since, u.reason,"
	" u.checks, u.late_answer" RESOLVER_DUE
	" AND ($3 IS NULL OR l.action OPERATOR(pg_catalog.=) $3)"
	" ORDER BY u.since, u.effect_key LIMIT 1 FOR UPDATE OF l, u SKIP LOCKED",
	3, {TIMESTAMPTZOID, FLOAT8OID, TEXTOID}
};

static SqlPlan resolver_hide = {
	"UPDATE effect.unknown SET next_check = $2, checked_by = $3"
	" WHERE effect_key OPERATOR(pg_catalog.=) $1",
	3, {UUIDOID, TIMESTAMPTZOID, TEXTOID}
};

static SqlPlan resolver_inputs = {
	"SELECT inputs FROM effect.ledger WHERE effect_key OPERATOR(pg_catalog.=) $1",
	1, {UUIDOID}
};

/* One look at the far side: of which effect, and what was found */
typedef struct Look
{
	Effect		effect;
	Action		action;
	Resolution	found;
} Look;

static void
resolver_due_args(SqlArgs *args)
{
	sql_arg_time(args, GetCurrentTimestamp());
	sql_arg(args, Float8GetDatum(effect_default_settle / 1000.0), false);
}

/* The effects whose registered resolvers should look now, oldest first. */
static pg_uuid_t *
resolver_due(int limit, int *n)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	pg_uuid_t  *keys;

	sql_open(&scope);
	resolver_due_args(&args);
	sql_arg(&args, Int32GetDatum(limit), false);
	(void) sql_read(&resolver_select_due, &args);
	keys = sql_rows_uuid(&scope, 0, n);
	sql_close(&scope);
	return keys;
}

static Jsonb *
resolver_read_inputs(const pg_uuid_t *key)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	Jsonb	   *inputs = NULL;

	sql_open(&scope);
	sql_arg_uuid(&args, key);
	if (sql_read(&resolver_inputs, &args) > 0)
		inputs = sql_column_jsonb(&scope, 1);
	sql_close(&scope);
	return inputs;
}

/* The call itself, as whoever we are now; fills "found". */
static void
resolver_execute(const Action *action, const Effect *effect, Oid role, Resolution *found)
{
	MemoryContext caller = CurrentMemoryContext;
	Oid			types[3] = {UUIDOID, TEXTOID, JSONBOID};
	Jsonb	   *inputs = resolver_read_inputs(&effect->key);
	Datum		values[3] = {UUIDPGetDatum(&effect->key), CStringGetTextDatum(effect->target),
	JsonbPGetDatum(inputs)};
	char		nulls[4] = {' ', ' ', inputs ? ' ' : 'n', '\0'};
	SqlScope	scope = {.caller = caller};
	char	   *finding;

	(void) action_resolver_function(action->resolver, role);
	SPI_connect();
	if (SPI_execute_with_args(psprintf("SELECT finding::pg_catalog.text, evidence::pg_catalog.jsonb,"
									   " response::pg_catalog.jsonb FROM %s($1, $2, $3)",
									   action->resolver),
							  3, types, values, nulls, false, 2) != SPI_OK_SELECT ||
		SPI_processed != 1 || (finding = sql_column_text(&scope, 1)) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_ILLEGAL_STEP),
				 errmsg("resolver %s did not return one row with a finding", action->resolver)));
	found->finding = resolve_finding(finding);
	found->evidence = sql_column_jsonb(&scope, 2);
	found->response = sql_column_jsonb(&scope, 3);
	SPI_finish();
}

/* As the registering role, with nothing of ours in its search path. */
static void
resolver_call_as(void *arg)
{
	Look	   *look = arg;
	Oid			role = get_role_oid(look->action.registered_by, false);
	Oid			user;
	int			security;
	int			nest;

	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(role, security | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	nest = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	resolver_execute(&look->action, &look->effect, role, &look->found);
	AtEOXact_GUC(true, nest);
	SetUserIdAndSecContext(user, security);
}

/*
 * Not the resolver's failure, but somebody's will: a cancel, a timeout or a
 * shutdown of this session passes through.  The same SQLSTATE from a remote
 * server, or raised by the resolver itself, is the resolver's failure.
 */
static bool
resolver_passes_through(const ErrorData *error)
{
	return ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION &&
		error->funcname != NULL && strcmp(error->funcname, "ProcessInterrupts") == 0;
}

/* Call the resolver in a subtransaction; what it raises is cannot_tell. */
static void
resolver_call(Look *look)
{
	ErrorData  *error = sql_try(resolver_call_as, look);

	if (error == NULL)
		return;
	if (resolver_passes_through(error))
		ReThrowError(error);
	look->found.finding = FOUND_UNCLEAR;
	look->found.evidence = look->found.response = NULL;
	ledger_journal(&look->effect, "resolver_failed", look->effect.token,
				   psprintf("%s: %s (SQLSTATE %s)", look->action.resolver, error->message,
							unpack_sql_state(error->sqlerrcode)), NULL);
	FreeErrorData(error);
}

/*
 * Have an effect's registered resolver look; false: there is nothing to look
 * for.  The list of what is due may be old by now: another attempt of which the
 * request may still be in flight is none of it.
 */
static bool
resolver_look(const pg_uuid_t *key, Look *look)
{
	memset(look, 0, sizeof(*look));
	if (!ledger_read(key, LOCK_NONE, &look->effect) || look->effect.state != STATE_UNKNOWN)
		return false;
	action_get(look->effect.action, false, &look->action);
	if (look->action.resolver == NULL ||
		look->effect.submitted_at + look->action.settle > GetCurrentTimestamp())
		return false;
	look->found.finding = FOUND_UNCLEAR;
	look->found.attempt = look->effect.attempt;
	resolver_call(look);
	return true;
}

/* Write down what was found, unless the effect has moved on; the finding, or -1. */
static int
resolver_write(Look *look)
{
	Effect		now;

	if (!ledger_read(&look->effect.key, LOCK_SKIP, &now) || now.state != STATE_UNKNOWN ||
		now.attempt != look->found.attempt)
		return -1;
	resolve_write(&now, &look->found);
	return look->found.finding;
}

/*
 * resolver_sweep
 *		Look for what is due, at most "limit" effects and not beyond "until";
 *		then write down what was found, so that no row is locked while a far
 *		side takes its time.  Counts by finding.
 */
void
resolver_sweep(int limit, TimestampTz until, int found[3])
{
	int			n;
	int			looked = 0;
	pg_uuid_t  *keys = resolver_due(limit, &n);
	Look	   *looks = palloc(n * sizeof(Look) + 1);

	for (int i = 0; i < n && GetCurrentTimestamp() < until; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (resolver_look(&keys[i], &looks[looked]))
			looked++;
	}
	for (int i = 0; i < looked; i++)
	{
		int			finding = resolver_write(&looks[i]);

		if (finding >= 0)
			found[finding]++;
	}
}

/*
 * effect.next_unknown(owner, action, lease_for) -> one row or none
 *		The oldest that is due, hidden from other pollers until lease_for has
 *		passed, so a crash of the poller hands it on.  Errors: 22004, 22023,
 *		25006.
 */
Datum
effect_next_unknown(PG_FUNCTION_ARGS)
{
	char	   *owner = arg_text(fcinfo, 0, "owner", EFFECT_MAX_LABEL);
	char	   *action = arg_text_or_null(fcinfo, 1, "action", EFFECT_MAX_KEY);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	SqlScope	scope;
	SqlArgs		args = {0};
	SqlArgs		hide = {0};
	TimestampTz until;
	Datum		values[10];
	bool		nulls[10];

	if (PG_ARGISNULL(2))
		arg_missing("lease_for");
	until = lease_end(GetCurrentTimestamp(), PG_GETARG_INTERVAL_P(2));
	begin_writing("effect.next_unknown()");
	InitMaterializedSRF(fcinfo, 0);
	sql_open(&scope);
	resolver_due_args(&args);
	sql_arg_text(&args, action);
	if (sql_write(&resolver_select_next, &args) > 0)
	{
		for (int i = 0; i < 10; i++)
			nulls[i] = !sql_column_copy(&scope, i + 1, &values[i]);
		sql_arg(&hide, values[0], false);
		sql_arg_time(&hide, until);
		sql_arg_text(&hide, owner);
		(void) sql_write(&resolver_hide, &hide);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	sql_close(&scope);
	return (Datum) 0;
}
