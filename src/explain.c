/*
 * explain.c
 *	  What claim_effect would answer, and in a sentence why.
 *
 * Nothing is locked or written, so the answer is true at the instant it is given
 * and no longer.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "attempt.h"

PG_FUNCTION_INFO_V1(effect_explain_effect);

static SqlPlan explain_quarantine_reason = {
	"SELECT quarantine_reason FROM effect.cluster WHERE quarantined_since IS NOT NULL", 0
};

/* What stands between a claim and its submit; empty: no approval is needed. */
static char *
explain_approvals(const Effect *effect, const Action *action)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz deadline;
	int			given;

	if (action->approvals == 0)
		return "";
	given = approval_look(effect, action, now, &deadline);
	if (given >= action->approvals)
		return psprintf("; it has the %d approval(s) that its submit needs", action->approvals);
	if (deadline != 0 && now > deadline)
		return psprintf("; it was not approved by %s; whoever submits it is told closed",
						timestamptz_to_str(deadline));
	return psprintf("; it lacks %d of %d approval(s): its submit is told unapproved until they are given",
					action->approvals - given, action->approvals);
}

/* How it ended, and when. */
static char *
explain_done(const Effect *effect)
{
	char	   *ended = pstrdup(timestamptz_to_str(effect->updated_at));
	const char *told = effect->response ? "whoever asks is given its response" : "no response is recorded";

	if (strcmp(effect->ending, "closed") == 0)
		return psprintf("closed at %s, without being done: %s", ended, effect->reason);
	if (strcmp(effect->ending, "applied") == 0)
		return psprintf("done in this database at %s; %s", ended, told);
	if (strcmp(effect->ending, "resolved") == 0)
		return psprintf("attempt %d was found at %s to have happened; %s", effect->attempt, ended, told);
	return psprintf("attempt %d was completed at %s; %s", effect->attempt, ended, told);
}

/* What becomes of an unknown effect, by the policy of its action. */
static char *
explain_unknown(const Effect *effect, const Action *action)
{
	char	   *what = "it was reopened and may have happened";

	if (effect->submitted_at != 0)
		what = psprintf("attempt %d was submitted at %s and may have happened", effect->attempt,
						timestamptz_to_str(effect->submitted_at));
	if (action->on_unknown == POLICY_DROP)
		return psprintf("%s; its action drops what is unknown: it is not sent again, and nobody is asked to look",
						what);
	if (action->resolver != NULL)
		return psprintf("%s; sweep asks %s, or look at the far side yourself and call effect.resolve_unknown()",
						what, action->resolver);
	return psprintf("%s; it is not sent again until someone has looked at the far side and called "
					"effect.resolve_unknown()", what);
}

/* Who has it, and what happens after that. */
static char *
explain_busy(const Effect *effect, const Action *action)
{
	char	   *who = attempt_busy_detail(effect, NULL, 0);

	if (attempt_is_askers(effect, NULL, 0))
		return who;
	if (effect->state == STATE_SUBMITTED)
		return psprintf("submitted at %s; %s; if that ends without an answer it is unknown",
						timestamptz_to_str(effect->submitted_at), who);
	return psprintf("claimed: %s; once that is over the next attempt may be made%s", who,
					explain_approvals(effect, action));
}

/* Why the next attempt may be made. */
static char *
explain_free(const Effect *effect, const Action *action)
{
	const char *why = "its time was up";

	if (ledger_is_unknown(effect))
		why = action->on_unknown == POLICY_RESEND ? "on_unknown is resend"
			: psprintf("its far side knows the key until %s",
					   timestamptz_to_str(effect->created_at + action->dedupes_for));
	else if (!effect->held)
		why = effect->submitted_at != 0 ? "its last attempt did not happen"
			: "it was given back";
	else if (effect->job_key != NULL)
		why = "its run is over";
	return psprintf("%s (%s): attempt %d may be made%s",
					ledger_is_unknown(effect) ? "unknown, and its action lets it be sent again"
					: "claimed, but held by nobody",
					why, effect->attempt + 1, explain_approvals(effect, action));
}

static char *
explain_quarantined(void)
{
	SqlScope	scope;
	SqlArgs		none = {0};
	char	   *reason = NULL;

	sql_open(&scope);
	if (sql_read(&explain_quarantine_reason, &none) > 0)
		reason = sql_column_text(&scope, 1);
	sql_close(&scope);
	return reason ? psprintf("%s: %s", attempt_quarantined, reason) : attempt_quarantined;
}

/* The sentence beside the verdict. */
static char *
explain_verdict(const Effect *effect, const Attempt *attempt, EffectVerdict verdict, const char *detail)
{
	switch (verdict)
	{
		case VERDICT_DONE:
		case VERDICT_CLOSED:
			return explain_done(effect);
		case VERDICT_QUARANTINED:
			return explain_quarantined();
		case VERDICT_UNKNOWN:
			return explain_unknown(effect, &attempt->action);
		case VERDICT_BUSY:
			return explain_busy(effect, &attempt->action);
		case VERDICT_MISMATCH:
			return psprintf("%s; its target alone is the key: refuse, or give what is new a target of its own",
							detail);
		default:
			return explain_free(effect, &attempt->action);
	}
}

/* Nobody has claimed it, as far as can be seen. */
static EffectVerdict
explain_absent(const pg_uuid_t *key, const Attempt *attempt, const Effect *effect, char **detail)
{
	if (attempt->quarantined)
	{
		*detail = explain_quarantined();
		return VERDICT_QUARANTINED;
	}
	if (sql_probe_key(key, false) == PROBE_IN_FLIGHT)
	{
		*detail = "another transaction is claiming it at this instant";
		return VERDICT_BUSY;
	}
	*detail = psprintf("nobody has claimed it: the first attempt may be made%s",
					   explain_approvals(effect, &attempt->action));
	return VERDICT_RESERVED;
}

/*
 * effect.explain_effect(action, target, inputs) -> one row
 *		What claim_effect would answer, and in a sentence why, and what would
 *		happen next.  Writes nothing, works on a standby, and never says go.
 *		Errors: 22004, 22023.
 */
Datum
effect_explain_effect(PG_FUNCTION_ARGS)
{
	Attempt		attempt = {0};
	pg_uuid_t	key;
	Effect		effect;
	EffectVerdict verdict;
	char	   *detail;

	action_get(arg_text(fcinfo, 0, "action", EFFECT_MAX_KEY), false, &attempt.action);
	attempt.target = arg_text(fcinfo, 1, "target", EFFECT_MAX_TARGET);
	attempt.inputs = attempt_inputs(fcinfo, 2);
	action_key(&attempt.action, attempt.target, attempt.inputs, attempt.digest, &key);
	attempt.quarantined = cluster_quarantined();
	if (ledger_read(&key, LOCK_NONE, &effect))
	{
		verdict = attempt_judge(&effect, &attempt, &detail);
		detail = explain_verdict(&effect, &attempt, verdict, detail);
	}
	else
		verdict = explain_absent(&key, &attempt, &effect, &detail);
	return ledger_answer(fcinfo, &effect, verdict, detail);
}
