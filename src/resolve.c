/*
 * resolve.c
 *	  The way out of unknown: what someone who looked at the far side found.
 *
 * A finding is about one attempt.  It is taken only when nobody can act on that
 * attempt any more and, where it says that nothing happened, only when the
 * request can no longer be in flight.  The row lock of the effect protects all
 * of it; nothing lives here between calls.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_resolve_unknown);

static const char *const findings[] = {"happened", "did_not_happen", "cannot_tell"};

static SqlPlan unknown_checked = {
	"UPDATE effect.unknown SET checks = checks OPERATOR(pg_catalog.+) 1,"
	" next_check = $2 OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs =>"
	"   LEAST($3, (60 OPERATOR(pg_catalog.*) (2 OPERATOR(pg_catalog.^) LEAST(checks, 20))))),"
	" checked_by = NULL WHERE effect_key OPERATOR(pg_catalog.=) $1",
	3, {UUIDOID, TIMESTAMPTZOID, FLOAT8OID}
};

Finding
resolve_finding(const char *label)
{
	for (int i = 0; i < lengthof(findings); i++)
		if (strcmp(label, findings[i]) == 0)
			return (Finding) i;
	elog(ERROR, "unexpected finding \"%s\"", label);
	pg_unreachable();
}

/* LE009: the finding is about an attempt that is not the current one. */
static void
resolve_check_attempt(const Effect *effect, const Resolution *found)
{
	if (found->attempt == 0 || found->attempt == effect->attempt)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_OTHER_ATTEMPT),
			 errmsg("the finding is about attempt %d, the effect is at attempt %d",
					found->attempt, effect->attempt),
			 errhint("Nothing was changed. Look at the far side again for the current attempt.")));
}

/*
 * What has ended, or was never sent: only a repeat of the finding that ended it
 * is accepted.  true: it is such a repeat, nothing is left to do.
 */
static bool
resolve_is_repeat(const Effect *effect, const Resolution *found)
{
	if (effect->state == STATE_DONE && found->finding == FOUND_HAPPENED &&
		strcmp(effect->ending, "resolved") == 0)
		return true;
	if (effect->state == STATE_CLAIMED && found->finding == FOUND_ABSENT && !effect->held)
		return true;
	if (effect->state != STATE_DONE && effect->state != STATE_CLAIMED)
		return false;
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_ILLEGAL_STEP),
			 errmsg("cannot resolve an effect that is %s",
					effect->state == STATE_DONE ? "done" : "claimed"),
			 effect->state == STATE_DONE
			 ? errhint("If its recorded ending is wrong, call effect.reopen_effect() first.")
			 : errhint("Nothing was submitted, so nothing can have happened; it may be attempted.")));
	pg_unreachable();
}

/* LE010: the holder is alive and will say how it went. */
static void
resolve_check_over(const Effect *effect)
{
	if (ledger_is_unknown(effect))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_IN_FLIGHT),
			 errmsg("attempt %d is still in flight", effect->attempt),
			 errdetail("%s.", attempt_busy_detail(effect, NULL, 0)),
			 errhint("Wait for its answer or the end of its lease; once that is over, claim or revoke the "
					 "lease, or call effect.mark_unknown() if you know that its holder is gone.")));
}

/* LE008: the request may still reach the far side. */
static void
resolve_check_settled(const Effect *effect)
{
	Action		action;
	TimestampTz settled;

	action_get(effect->action, false, &action);
	settled = effect->submitted_at + action.settle;
	if (GetCurrentTimestamp() >= settled)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_TOO_EARLY),
			 errmsg("too early to say that it did not happen"),
			 errdetail("It was submitted at %s; its request may be in flight until %s.",
					   pstrdup(timestamptz_to_str(effect->submitted_at)),
					   pstrdup(timestamptz_to_str(settled))),
			 errhint("Look at the far side again after that.")));
}

/*
 * Nobody can tell yet: count the check, and put the next one off by 1, 2, 4 ...
 * minutes, up to effect.resolve_backoff_max.
 */
static void
resolve_postpone(Effect *effect)
{
	SqlScope	scope;
	SqlArgs		args = {0};

	ledger_set_unknown(effect, "its holder was superseded or its time was up", NULL);
	sql_open(&scope);
	sql_arg_uuid(&args, &effect->key);
	sql_arg_time(&args, GetCurrentTimestamp());
	sql_arg(&args, Float8GetDatum(effect_resolve_backoff_max), false);
	(void) sql_write(&unknown_checked, &args);
	sql_close(&scope);
}

/* Write the finding down.  The row is locked, the finding has been checked. */
void
resolve_write(Effect *effect, const Resolution *found)
{
	SqlScope	scope;
	JournalEntry entry = {.event = "finding", .job_key = effect->job_key, .token = effect->token,
		.key = &effect->key, .attempt = effect->attempt, .detail = findings[found->finding],
	.evidence = found->evidence};

	if (found->finding == FOUND_UNCLEAR)
		resolve_postpone(effect);
	else
	{
		effect->state = found->finding == FOUND_HAPPENED ? STATE_DONE : STATE_CLAIMED;
		effect->ending = found->finding == FOUND_HAPPENED ? "resolved" : NULL;
		effect->response = found->finding == FOUND_HAPPENED ? found->response : NULL;
		effect->held = false;
		effect->nonce = NULL;
		ledger_write(effect);
		ledger_clear_unknown(&effect->key);
		if (found->finding == FOUND_ABSENT)
			ledger_list(&effect->key);	/* claimed again, behind sweep's mark */
		stats_deed(STATS_ACTION, effect->action,
				   found->finding == FOUND_HAPPENED ? COUNT_FOUND_HAPPENED : COUNT_FOUND_ABSENT);
	}
	sql_open(&scope);
	journal_add(&entry);
	sql_close(&scope);
}

/*
 * effect.resolve_unknown(effect_key, finding, attempt, evidence, response)
 *		-> the state it left the effect in.  did_not_happen must name the
 *		attempt (22004).  Errors: 22004, 22023, 25006, LE003, LE004 (done, or
 *		never submitted), LE008, LE009, LE010.
 */
Datum
effect_resolve_unknown(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	Resolution	found = {.finding = resolve_finding(arg_enum(fcinfo, 1, "finding")),
		.attempt = PG_ARGISNULL(2) ? 0 : PG_GETARG_INT32(2),
		.evidence = arg_jsonb(fcinfo, 3, "evidence"),
	.response = arg_jsonb(fcinfo, 4, "response")};
	Effect		effect;

	if (found.finding == FOUND_ABSENT && PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("did_not_happen must name the attempt it is about"),
				 errhint("Pass attempt as the view effect.effects shows it: a later one may be under way.")));
	if (!PG_ARGISNULL(2) && found.attempt <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("attempt must be positive, not %d", found.attempt)));
	begin_writing("effect.resolve_unknown()");
	if (!ledger_read(key, LOCK_WAIT, &effect))
		ledger_missing(key);
	resolve_check_attempt(&effect, &found);
	if (!resolve_is_repeat(&effect, &found))
	{
		resolve_check_over(&effect);
		if (found.finding == FOUND_ABSENT)
			resolve_check_settled(&effect);
		resolve_write(&effect, &found);
	}
	return enum_datum(get_func_rettype(fcinfo->flinfo->fn_oid), ledger_state_label(&effect));
}
