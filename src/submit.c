/*
 * submit.c
 *	  submit_effect: the record that is written just before the act.
 *
 * As the rest of attempt.c: it says "go" only when the record is committed as
 * the statement returns, it never waits for a ledger row, and a job's attempt
 * registers a fence.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "attempt.h"

PG_FUNCTION_INFO_V1(effect_submit_effect);

/*
 * attempt_holds
 *		Is this token the effect's own?  false: superseded by a later attempt.
 *		A token that no attempt at this effect ever had raises LE003.
 */
bool
attempt_holds(const Effect *effect, int64 token)
{
	if (token == effect->token)
		return true;
	if (token <= Max(effect->token, effect->highest_token))
		return false;
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_NOT_FOUND),
			 errmsg("token " INT64_FORMAT " never had an attempt at this effect", token),
			 errdetail("Its latest attempt has token " INT64_FORMAT ".", effect->token),
			 errhint("Use the fencing_token that claim_effect or begin_effect returned.")));
	pg_unreachable();
}

/* What submit answers without writing; VERDICT_GO: it may be submitted. */
static EffectVerdict
submit_judge(const Effect *effect, int64 token, pg_uuid_t *nonce, char **detail)
{
	*detail = NULL;
	if (effect->state == STATE_DONE)
		return ledger_done_verdict(effect, detail);
	if (cluster_quarantined())
	{
		*detail = attempt_quarantined;
		return VERDICT_QUARANTINED;
	}
	if (!attempt_holds(effect, token) || (effect->job_key != NULL && !effect->alive))
	{
		*detail = psprintf("token " INT64_FORMAT " is superseded", token);
		return VERDICT_FENCED;
	}
	if (ledger_is_unknown(effect))
	{
		*detail = attempt_unknown_detail(effect);
		return VERDICT_UNKNOWN;
	}
	if (effect->state == STATE_SUBMITTED && !attempt_same_nonce(effect, nonce))
	{
		*detail = "yours: submitted by you; complete it, retract it or mark it unknown";
		return VERDICT_BUSY;
	}
	return VERDICT_GO;
}

/* Lock the row, without waiting, and judge again. */
static EffectVerdict
submit_lock(const pg_uuid_t *key, int64 token, pg_uuid_t *nonce, Effect *effect, char **detail)
{
	if (ledger_read(key, LOCK_SKIP, effect))
		return submit_judge(effect, token, nonce, detail);
	(void) ledger_read(key, LOCK_NONE, effect);
	*detail = attempt_locked;
	return VERDICT_BUSY;
}

/*
 * Submit what is claimed.  A claim that is held by nobody (it was retracted, or
 * found not to have happened) is its last holder's next attempt.
 */
static EffectVerdict
submit_write(Effect *effect, int64 token, pg_uuid_t *nonce, char **detail)
{
	Attempt		next = {.job_key = effect->job_key, .token = token, .nonce = nonce,
		.run_id = effect->run_id, .terms_shown = effect->terms_shown, .submit = true,
		.same = effect->held};

	if (effect->held)
		effect->attempt--;		/* it was counted when it was claimed */
	action_get(effect->action, true, &next.action);
	attempt_take(effect, &next);
	ledger_write(effect);
	return attempt_taken(&next, effect, detail);
}

/*
 * effect.submit_effect(effect_key, fencing_token, nonce) -> one row
 *		Errors: 22004, 22023, 25006, LE003; LE001 at COMMIT.
 */
Datum
effect_submit_effect(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	int64		token = arg_token(fcinfo, 1);
	pg_uuid_t  *nonce = PG_ARGISNULL(2) ? NULL : PG_GETARG_UUID_P(2);
	Effect		effect;
	EffectVerdict verdict;
	char	   *detail;

	begin_writing("effect.submit_effect()");
	if (!ledger_read(key, LOCK_NONE, &effect))
		ledger_missing(key);
	verdict = submit_judge(&effect, token, nonce, &detail);
	if (verdict == VERDICT_GO && effect.state == STATE_CLAIMED)
		verdict = submit_lock(key, token, nonce, &effect, &detail);
	/* the token of a replaced attempt may be another job's, which nobody knows any more */
	if (verdict == VERDICT_FENCED && effect.job_key != NULL && token == effect.token)
		lease_refused(effect.job_key, token, "submit_effect");
	if (verdict == VERDICT_GO && effect.state == STATE_CLAIMED)
		verdict = submit_write(&effect, token, nonce, &detail);
	else if (verdict == VERDICT_GO)
	{
		if (effect.job_key != NULL)
			fence_add(effect.job_key, token);
		verdict = attempt_go();
	}
	stats_verdict(effect.action, verdict);
	return ledger_answer(fcinfo, &effect, verdict, detail);
}
