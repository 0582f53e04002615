/*
 * acl.c
 *	  Who may do what: grant_worker, grant_operator, grant_monitor.
 *
 * The sets stand here, in one place.  The GRANTs run as the caller, who must
 * own the extension's objects; they are recorded by PostgreSQL and dumped by
 * pg_dump.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_grant_worker);
PG_FUNCTION_INFO_V1(effect_grant_operator);
PG_FUNCTION_INFO_V1(effect_grant_monitor);
PG_FUNCTION_INFO_V1(effect_grant_approver);

/* Pure functions, and what tells how tables are fenced */
static const char acl_common[] =
"effect.canonical_json(jsonb), effect.input_digest(jsonb), effect.input_digest(jsonb, text[]),"
"effect.effect_key(text, text, text), effect.facts(VARIADIC \"any\"), effect.fence_gaps()";

#define ACL_SET_JOB \
"effect.set_job(text, interval, effect.overlap_policy, integer, interval, interval, timestamptz," \
" text, effect.checkpoint_scope, boolean, interval, name[]), effect.drop_job(text)"

#define ACL_SET_ACTION \
"effect.set_action(text, text[], effect.identity, effect.unknown_policy, text, interval, interval," \
" interval, integer, interval, interval, interval, name[])"

static const char acl_worker[] =
"effect.claim_lease(text, text, interval, text, uuid), effect.claim_any(text[], text, interval),"
"effect.renew_lease(text, bigint, interval),"
"effect.release_lease(text, bigint, effect.run_outcome, jsonb),"
"effect.fence(text, bigint), effect.is_current(text, bigint),"
"effect.fenced_insert(text, bigint, regclass, jsonb), effect.require_fence(regclass, text),"
"effect.drop_fence(regclass), effect.keep_token_monotonic(regclass, name),"
"effect.check_fence(), effect.check_token_monotonic(),"
"effect.claim_effect(text, text, jsonb, text, bigint, text, text, uuid),"
"effect.begin_effect(text, text, jsonb, text, bigint, text, text, uuid),"
"effect.begin_effects(text, text[], jsonb[], text, bigint, text),"
"effect.submit_effect(uuid, bigint, uuid), effect.complete_effect(uuid, bigint, jsonb),"
"effect.complete_effects(uuid[], bigint, jsonb[]), effect.retract_effect(uuid, bigint, jsonb),"
"effect.mark_unknown(uuid, bigint, text), effect.close_effect(uuid, text, jsonb),"
"effect.explain_effect(text, text, jsonb), effect.apply_effect(text, text, jsonb),"
"effect.once(text, text, jsonb), effect.once(text, text[]),"
"effect.save_checkpoint(text, bigint, jsonb), effect.get_checkpoint(text),"
"effect.firing_of(text, timestamptz)," ACL_SET_JOB "," ACL_SET_ACTION;

static const char acl_operator[] =
"effect.revoke_lease(text, text), effect.bump_epochs(),"
"effect.resolve_unknown(uuid, effect.finding, integer, jsonb, jsonb),"
"effect.mark_unknown(uuid, bigint, text), effect.close_effect(uuid, text, jsonb),"
"effect.reopen_effect(uuid, text), effect.explain_effect(text, text, jsonb),"
"effect.next_unknown(text, text, interval), effect.sweep(), effect.quarantine(text),"
"effect.adopt_cluster()," ACL_SET_JOB "," ACL_SET_ACTION;

static const char acl_approver[] =
"effect.approve(uuid, text, text, interval), effect.revoke_approval(uuid, text),"
"effect.refuse_approval(uuid, text, text)";
static const char acl_approver_views[] = "effect.awaiting_approval, effect.unused_approvals";

static const char acl_monitor[] =
"effect.may_read_bodies(), effect.open_keys()";
static const char acl_numbers[] =
"effect.metrics(), effect.job_numbers(), effect.action_numbers(), effect.dashboard(),"
"effect.dashboard_attention(), effect.dashboard_leases(),"
"effect.dashboard_effects(), effect.dashboard_counters(text), effect.dashboard_runs(),"
"effect.dashboard_style(), effect.dashboard_name(text), effect.dashboard_time(timestamptz),"
"effect.dashboard_span(interval), effect.dashboard_number(numeric),"
"effect.dashboard_more(bigint, text), effect.escape_html(text)";
static const char acl_views[] =
"effect.leases, effect.runs, effect.effects, effect.journal, effect.open_effects,"
"effect.unknown_effects, effect.abandoned_claims, effect.attention, effect.advice, effect.job_stats,"
"effect.action_stats, effect.lookalikes, effect.counters, effect.metric_values,"
"effect.job_numbers, effect.action_numbers,"
"effect.awaiting_approval, effect.unused_approvals";

/* GRANT ... TO role, as the caller. */
static void
acl_grant(const char *what, const char *role)
{
	char	   *sql = psprintf("GRANT %s TO %s", what, quote_identifier(role));

	if (SPI_execute(sql, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not run \"%s\"", sql);
}

static void
acl_grant_functions(const char *functions, const char *role)
{
	acl_grant(psprintf("EXECUTE ON FUNCTION %s", functions), role);
}

/* What every set has; NULL raises 22004, a role that does not exist 42704. */
static char *
acl_begin(FunctionCallInfo fcinfo)
{
	char	   *role;

	if (PG_ARGISNULL(0))
		arg_missing("role");
	role = NameStr(*PG_GETARG_NAME(0));
	(void) get_role_oid(role, false);
	SPI_connect();
	acl_grant("USAGE ON SCHEMA effect", role);
	acl_grant_functions(acl_common, role);
	return role;
}

static void
acl_grant_views(const char *role)
{
	acl_grant_functions(acl_monitor, role);
	acl_grant_functions(acl_numbers, role);
	acl_grant(psprintf("SELECT ON %s", acl_views), role);
}

/* effect.grant_worker(role) -> void.  22004, 42704 no such role, 42501 not the owner. */
Datum
effect_grant_worker(PG_FUNCTION_ARGS)
{
	char	   *role = acl_begin(fcinfo);

	acl_grant_functions(acl_worker, role);
	acl_grant("EXECUTE ON PROCEDURE effect.run_job(text, text, text, text)", role);
	SPI_finish();
	PG_RETURN_VOID();
}

/* effect.grant_operator(role) -> void.  Errors: as grant_worker. */
Datum
effect_grant_operator(PG_FUNCTION_ARGS)
{
	char	   *role = acl_begin(fcinfo);

	acl_grant_functions(acl_operator, role);
	acl_grant_views(role);
	SPI_finish();
	PG_RETURN_VOID();
}

/* effect.grant_monitor(role) -> void.  Errors: as grant_worker. */
Datum
effect_grant_monitor(PG_FUNCTION_ARGS)
{
	acl_grant_views(acl_begin(fcinfo));
	SPI_finish();
	PG_RETURN_VOID();
}

/*
 * effect.grant_approver(role) -> void
 *		In no other set: who asks and who consents are different people.  An
 *		approver sees what awaits approval, terms included.
 */
Datum
effect_grant_approver(PG_FUNCTION_ARGS)
{
	char	   *role = acl_begin(fcinfo);

	acl_grant_functions(acl_approver, role);
	acl_grant_functions(acl_monitor, role);
	acl_grant(psprintf("SELECT ON %s", acl_approver_views), role);
	SPI_finish();
	PG_RETURN_VOID();
}
