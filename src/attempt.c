/*
 * attempt.c
 *	  Taking an effect: claim and begin.
 *
 * Only submit and begin say "go", and only when the record is committed as the
 * statement returns; in a transaction that stays open they say so.  None of
 * them ever waits for a ledger row: whoever has it locked this instant makes
 * the answer "busy".  An attempt of a job registers a fence, so that a run that
 * was superseded meanwhile commits no attempt.  Nothing lives here between
 * calls; what protects a row is said in ledger.c.
 */
#include "postgres.h"

#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/params.h"
#include "postmaster/bgworker.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "attempt.h"

PG_FUNCTION_INFO_V1(effect_claim_effect);
PG_FUNCTION_INFO_V1(effect_begin_effect);
PG_FUNCTION_INFO_V1(effect_begin_effects);

/* A row that appears and vanishes under us more often than this is busy. */
#define ATTEMPT_MAX_TRIES	10

char attempt_quarantined[] = "nothing is sent from here until effect.adopt_cluster()";
char attempt_locked[] = "another transaction has it locked at this instant";

/*
 * attempt_stands_alone
 *		Does the current statement commit by itself as it returns?  Not in a
 *		block, not in a pipeline, not under a function, DO, CALL or trigger
 *		(only the error context stack tells), not in a background worker, which
 *		commits when it likes.
 */
bool
attempt_stands_alone(void)
{
	if (IsTransactionBlock() || IsSubTransaction() || compat_in_background_worker() ||
		(MyXactFlags & XACT_FLAGS_PIPELINING))
		return false;
	for (ErrorContextCallback *context = error_context_stack; context; context = context->previous)
		if (context->callback != ParamsErrorCallback)
			return false;
	return true;
}

/* The record of a submit is evidence: flushed, and before the answer. */
EffectVerdict
attempt_go(void)
{
	cluster_flush_commit();
	if (!attempt_stands_alone())
		return VERDICT_GO_AFTER_COMMIT;
	MyXactFlags |= XACT_FLAGS_NEEDIMMEDIATECOMMIT;
	return VERDICT_GO;
}

/* inputs are needed; a JSON null or a bare value is a caller's slip. */
Jsonb *
attempt_inputs(FunctionCallInfo fcinfo, int n)
{
	Jsonb	   *inputs = arg_jsonb(fcinfo, n, "inputs");

	if (inputs == NULL)
		arg_missing("inputs");
	if (!JB_ROOT_IS_OBJECT(inputs))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("inputs must be a JSON object"),
				 errhint("Name the facts: effect.facts('amount', 10.50, 'currency', 'EUR').")));
	return inputs;
}

/* job_key and fencing_token come together or not at all. */
static void
attempt_args_job(FunctionCallInfo fcinfo, int n, Attempt *attempt)
{
	if (PG_ARGISNULL(n) && PG_ARGISNULL(n + 1))
		return;
	if (PG_ARGISNULL(n) || PG_ARGISNULL(n + 1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("job_key and fencing_token must be given together"),
				 errhint("Pass both, as claim_lease returned them, or neither.")));
	attempt->job_key = arg_text(fcinfo, n, "job_key", EFFECT_MAX_KEY);
	attempt->token = arg_token(fcinfo, n + 1);
}

/* The arguments that claim_effect and begin_effect share. */
static void
attempt_args(FunctionCallInfo fcinfo, Attempt *attempt, pg_uuid_t *key)
{
	char	   *action = arg_text(fcinfo, 0, "action", EFFECT_MAX_KEY);

	attempt->target = arg_text(fcinfo, 1, "target", EFFECT_MAX_TARGET);
	attempt->inputs = attempt_inputs(fcinfo, 2);
	attempt_args_job(fcinfo, 3, attempt);
	attempt->terms_shown = arg_text_or_null(fcinfo, 5, "terms_shown", EFFECT_MAX_TERMS);
	attempt->run_id = arg_text_or_null(fcinfo, 6, "run_id", EFFECT_MAX_LABEL);
	attempt->nonce = PG_ARGISNULL(7) ? NULL : PG_GETARG_UUID_P(7);
	action_get(action, true, &attempt->action);
	action_key(&attempt->action, attempt->target, attempt->inputs, attempt->digest, key);
}

/*
 * Is the caller's token worth anything?  LE003 if it never was.  Asked once, and
 * only for an effect that has not ended: a duplicate costs one index probe.
 */
static void
attempt_check_run(Attempt *attempt)
{
	Lease		lease;

	if (attempt->checked)
		return;
	attempt->checked = true;
	attempt->fenced = attempt->job_key != NULL &&
		!lease_accepts(attempt->job_key, attempt->token, &lease);
	attempt->quarantined = cluster_quarantined();
}

static bool
attempt_same_job(const Effect *effect, const char *job_key)
{
	return effect->job_key != NULL && job_key != NULL && strcmp(effect->job_key, job_key) == 0;
}

/*
 * Is the live attempt the caller's own?  With a job the token says so.  Without
 * one only an attempt made in this very transaction is known to be the same
 * caller's: two equal lines of one batch are one effect.
 */
bool
attempt_is_askers(const Effect *effect, const char *job_key, int64 token)
{
	if (effect->job_key != NULL)
		return attempt_same_job(effect, job_key) && effect->token == token;
	return job_key == NULL && effect->ours;
}

/* Who has it and until when; "yours" first where it is the caller's own. */
char *
attempt_busy_detail(const Effect *effect, const char *job_key, int64 token)
{
	const char *until = timestamptz_to_str(effect->holder_until);

	if (attempt_is_askers(effect, job_key, token))
		return effect->state == STATE_SUBMITTED
			? "yours: submitted by you; complete it, retract it or mark it unknown"
			: "yours: claimed by you; submit it or retract it";
	if (effect->job_key == NULL)
		return psprintf("attempt %d has it until %s", effect->attempt, until);
	return psprintf("run " INT64_FORMAT " of job \"%s\", held by %s until %s, has it",
					effect->token, effect->job_key, effect->holder ? effect->holder : "nobody", until);
}

char *
attempt_unknown_detail(const Effect *effect)
{
	if (effect->submitted_at == 0)
		return "it was reopened: look at the far side, then effect.resolve_unknown()";
	return psprintf("attempt %d was submitted at %s and may have happened: look at the far side, "
					"then effect.resolve_unknown()", effect->attempt,
					timestamptz_to_str(effect->submitted_at));
}

/* The same uncertain caller asking again, in a later transaction, within a minute. */
bool
attempt_same_nonce(const Effect *effect, pg_uuid_t *nonce)
{
	return nonce != NULL && effect->nonce != NULL && !effect->ours &&
		memcmp(nonce, effect->nonce, sizeof(pg_uuid_t)) == 0 &&
		GetCurrentTimestamp() - effect->updated_at <= EFFECT_NONCE_WINDOW;
}

static bool
attempt_is_replay(const Effect *effect, const Attempt *attempt)
{
	EffectState asked = attempt->submit ? STATE_SUBMITTED : STATE_CLAIMED;

	return attempt_same_nonce(effect, attempt->nonce) && effect->state == asked &&
		effect->held && effect->alive &&
		(effect->job_key == NULL ? attempt->job_key == NULL
		 : attempt_is_askers(effect, attempt->job_key, attempt->token));
}

/*
 * attempt_judge
 *		What the caller is told of an effect that is there, in the order of the
 *		verdicts: mismatch, done, closed, quarantined, fenced, unknown, busy.
 *		VERDICT_RESERVED: it may be taken.
 */
EffectVerdict
attempt_judge(const Effect *effect, const Attempt *attempt, char **detail)
{
	*detail = NULL;
	if (effect->inputs_digest != NULL && strcmp(effect->inputs_digest, attempt->digest) != 0)
	{
		*detail = ledger_mismatch(effect, attempt->inputs, attempt->action.key_fields);
		return VERDICT_MISMATCH;
	}
	if (effect->state == STATE_DONE)
		return ledger_done_verdict(effect, detail);
	if (attempt->quarantined)
	{
		*detail = attempt_quarantined;
		return VERDICT_QUARANTINED;
	}
	if (attempt->fenced)
		return VERDICT_FENCED;
	if (ledger_is_unknown(effect) && !action_may_resend(&attempt->action, effect->created_at))
	{
		*detail = attempt_unknown_detail(effect);
		return VERDICT_UNKNOWN;
	}
	if (effect->held && effect->alive && !ledger_is_unknown(effect))
	{
		*detail = attempt_busy_detail(effect, attempt->job_key, attempt->token);
		return VERDICT_BUSY;
	}
	if (attempt->job_key != NULL && attempt->token == effect->token &&
		!attempt_same_job(effect, attempt->job_key))
	{
		*detail = "an earlier attempt had a token of this number elsewhere: release the lease and claim it again";
		return VERDICT_BUSY;
	}
	return VERDICT_RESERVED;
}

/* Make an effect this caller's next attempt, claimed or submitted. */
void
attempt_take(Effect *effect, const Attempt *attempt)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		submit = attempt->submit && attempt->action.approvals == 0;

	effect->attempt++;
	effect->highest_token = Max(effect->highest_token, effect->token);
	effect->job_key = attempt->job_key;
	if (attempt->job_key || attempt->same)
		effect->token = attempt->token;
	else
		effect->token = Max(effect->attempt, effect->highest_token + 1);
	if (effect->highest_token <= effect->token)
		effect->highest_token = 0;
	effect->run_id = attempt->run_id;
	if (attempt->terms_shown != NULL)
		effect->terms_shown = attempt->terms_shown; /* what approvers were shown is kept */
	effect->nonce = attempt->nonce;
	effect->held = effect->alive = true;
	effect->state = submit ? STATE_SUBMITTED : STATE_CLAIMED;
	effect->busy_until = attempt->job_key ? 0
		: now + attempt->action.timeout;
	effect->submitted_at = submit ? now : 0;
}

/*
 * The attempt is written: fence it, and say what may be done now.  Where the
 * action needs approvals it was only claimed so far; they are spent in this
 * same transaction, and it is submitted.
 */
EffectVerdict
attempt_taken(const Attempt *attempt, Effect *effect, char **detail)
{
	EffectVerdict verdict;

	if (attempt->job_key != NULL)
		fence_add(attempt->job_key, attempt->token);
	if (attempt->submit && effect->state == STATE_CLAIMED)
	{
		verdict = approval_spend(effect, &attempt->action, detail);
		if (verdict != VERDICT_GO)
		{
			cluster_flush_commit();
			return verdict;
		}
		effect->state = STATE_SUBMITTED;
		effect->submitted_at = GetCurrentTimestamp();
		ledger_write(effect);
	}
	stats_deed(STATS_ACTION, effect->action, attempt->submit ? COUNT_GO : COUNT_RESERVED);
	if (attempt->submit)
	{
		ledger_list_straggler(effect);
		return attempt_go();
	}
	cluster_flush_commit();
	return VERDICT_RESERVED;
}

/* The uncertain caller's answer of then, given again: nothing is written. */
static EffectVerdict
attempt_again(const Attempt *attempt)
{
	if (attempt->job_key != NULL)
		fence_add(attempt->job_key, attempt->token);
	if (attempt->submit)
		return attempt_go();
	cluster_flush_commit();
	return VERDICT_RESERVED;
}

/* The effect has no row: insert one.  false: it has one by now. */
static bool
attempt_insert(const pg_uuid_t *key, const Attempt *attempt, Effect *effect,
			   EffectVerdict *verdict, char **detail)
{
	SqlProbe	found;

	memset(effect, 0, sizeof(*effect));
	effect->key = *key;
	*detail = NULL;
	*verdict = attempt->quarantined ? VERDICT_QUARANTINED : VERDICT_FENCED;
	if (attempt->quarantined)
		*detail = attempt_quarantined;
	if (attempt->quarantined || attempt->fenced)
		return true;
	effect->action = unconstify(char *, attempt->action.name);
	effect->target = unconstify(char *, attempt->target);
	effect->inputs = attempt->inputs;
	effect->inputs_digest = attempt->action.by_target ? pstrdup(attempt->digest) : NULL;
	attempt_take(effect, attempt);
	found = ledger_insert(effect);
	if (found == PROBE_ABSENT)
		*verdict = attempt_taken(attempt, effect, detail);
	else if (found == PROBE_IN_FLIGHT)
	{
		effect->attempt = 0;
		*verdict = VERDICT_BUSY;
		*detail = "another transaction is claiming it at this instant";
	}
	return found != PROBE_PRESENT;
}

/*
 * The effect has a row that may have to be changed: lock it, without waiting,
 * and judge again.  Either it is taken, or it is written down as unknown.
 */
static EffectVerdict
attempt_touch(const pg_uuid_t *key, const Attempt *attempt, Effect *effect, char **detail)
{
	EffectVerdict verdict;

	if (!ledger_read(key, LOCK_SKIP, effect))
	{
		(void) ledger_read(key, LOCK_NONE, effect);
		*detail = attempt_locked;
		return VERDICT_BUSY;
	}
	verdict = attempt_judge(effect, attempt, detail);
	if (ledger_is_unknown(effect) && effect->state == STATE_SUBMITTED)
		ledger_set_unknown(effect, "its holder was superseded or its time was up", NULL);
	if (verdict != VERDICT_RESERVED)
		return verdict;
	if (effect->state == STATE_UNKNOWN)
		ledger_resend(effect);
	attempt_take(effect, attempt);
	ledger_write(effect);
	return attempt_taken(attempt, effect, detail);
}

/*
 * attempt_make
 *		The whole of a claim or a begin.  A duplicate costs one read; nothing is
 *		written and no transaction id assigned for it.
 */
static EffectVerdict
attempt_make(const pg_uuid_t *key, Attempt *attempt, Effect *effect, char **detail)
{
	EffectVerdict verdict;

	/* busy: whoever has the key's lock may be looking at an effect that is done */
	if (attempt->new_likely && !attempt->fenced && !attempt->quarantined &&
		attempt_insert(key, attempt, effect, &verdict, detail) && verdict != VERDICT_BUSY)
		return verdict;
	for (int i = 0; i < ATTEMPT_MAX_TRIES; i++)
	{
		bool		found;

		CHECK_FOR_INTERRUPTS();
		found = ledger_read(key, LOCK_NONE, effect);
		if (!found || effect->state != STATE_DONE)
			attempt_check_run(attempt);
		if (!found)
		{
			if (attempt_insert(key, attempt, effect, &verdict, detail))
				return verdict;
			continue;
		}
		verdict = attempt_judge(effect, attempt, detail);
		if (verdict == VERDICT_BUSY && attempt_is_replay(effect, attempt))
		{
			*detail = NULL;
			return attempt_again(attempt);
		}
		if (verdict == VERDICT_RESERVED ||
			(verdict == VERDICT_UNKNOWN && effect->state == STATE_SUBMITTED))
			return attempt_touch(key, attempt, effect, detail);
		return verdict;
	}
	*detail = "it is changing hands at this instant";
	return VERDICT_BUSY;
}

/* Make the attempt, count what it was told, and note a run that came back. */
static EffectVerdict
attempt_run(const pg_uuid_t *key, Attempt *attempt, Effect *effect, char **detail)
{
	EffectVerdict verdict = attempt_make(key, attempt, effect, detail);

	stats_verdict(attempt->action.name, verdict);
	if (verdict == VERDICT_FENCED)
	{
		*detail = psprintf("token " INT64_FORMAT " of job \"%s\" is superseded",
						   attempt->token, attempt->job_key);
		lease_refused(attempt->job_key, attempt->token, "claim_effect or begin_effect");
	}
	return verdict;
}

static Datum
attempt_call(FunctionCallInfo fcinfo, bool submit, const char *function)
{
	Attempt		attempt = {.submit = submit};
	pg_uuid_t	key;
	Effect		effect;
	EffectVerdict verdict;
	char	   *detail;

	attempt_args(fcinfo, &attempt, &key);
	begin_writing(function);
	verdict = attempt_run(&key, &attempt, &effect, &detail);
	return ledger_answer(fcinfo, &effect, verdict, detail);
}

/*
 * effect.claim_effect(action, target, inputs, job_key, fencing_token,
 *					   terms_shown, run_id, nonce) -> one row
 *		Rules: doc/ledger.md.  Errors: 22004, 22023, 25006, LE003; LE001 at
 *		COMMIT where the job's token is superseded by then.
 */
Datum
effect_claim_effect(PG_FUNCTION_ARGS)
{
	return attempt_call(fcinfo, false, "effect.claim_effect()");
}

/* effect.begin_effect(... as claim_effect ...) -> one row: claim and submit. */
Datum
effect_begin_effect(PG_FUNCTION_ARGS)
{
	return attempt_call(fcinfo, true, "effect.begin_effect()");
}

/* The inputs of each target: '{}' where none are given. */
static Datum *
attempt_args_inputs(FunctionCallInfo fcinfo, int argument, int targets)
{
	Datum	   *inputs;
	int			n;

	if (PG_ARGISNULL(argument))
		return NULL;
	inputs = arg_array(fcinfo, argument, "inputs", &n);
	if (n != targets)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("targets has %d elements and inputs has %d", targets, n)));
	return inputs;
}

/* The inputs of one element, checked as those of a single call. */
static Jsonb *
attempt_element_inputs(Datum *inputs, int i)
{
	Jsonb	   *one = DatumGetJsonbP(inputs[i]);

	arg_check_jsonb(one, psprintf("element %d of inputs", i + 1));
	if (!JB_ROOT_IS_OBJECT(one))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("element %d of inputs must be a JSON object", i + 1)));
	return one;
}

/*
 * effect.begin_effects(action, targets, inputs, job_key, fencing_token, run_id)
 *		-> one row an element, in order.  A planner may call a function for rows
 *		that a LIMIT then drops; an array it can only take whole.
 *		Errors: as begin_effect; 22023 for arrays that do not match.
 */
Datum
effect_begin_effects(PG_FUNCTION_ARGS)
{
	Attempt		attempt = {.submit = true};
	int			n;
	char	  **targets;
	Datum	   *inputs;
	MemoryContext caller;
	MemoryContext element;
	Jsonb	   *none = jsonb_from_text("{}");

	action_get(arg_text(fcinfo, 0, "action", EFFECT_MAX_KEY), true, &attempt.action);
	targets = arg_text_array(fcinfo, 1, "targets", EFFECT_MAX_TARGET, &n);
	inputs = attempt_args_inputs(fcinfo, 2, n);
	attempt_args_job(fcinfo, 3, &attempt);
	attempt.run_id = arg_text_or_null(fcinfo, 5, "run_id", EFFECT_MAX_LABEL);
	begin_writing("effect.begin_effects()");
	InitMaterializedSRF(fcinfo, 0);
	element = AllocSetContextCreate(CurrentMemoryContext, "effect batch element", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(element);
	for (int i = 0; i < n; i++)
	{
		pg_uuid_t	key;
		Effect		effect;
		EffectVerdict verdict;
		char	   *detail;

		attempt.target = targets[i];
		attempt.inputs = inputs ? attempt_element_inputs(inputs, i) : none;
		action_key(&attempt.action, attempt.target, attempt.inputs, attempt.digest, &key);
		verdict = attempt_run(&key, &attempt, &effect, &detail);
		ledger_answer_row(fcinfo, &effect, verdict, detail, targets[i]);
		attempt.new_likely = effect.attempt == 1 &&
			(verdict == VERDICT_GO || verdict == VERDICT_GO_AFTER_COMMIT);
		MemoryContextReset(element);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(element);
	return (Datum) 0;
}
