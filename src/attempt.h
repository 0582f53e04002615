/*
 * attempt.h
 *	  What attempt.c, submit.c and explain.c share: one attempt at one effect.
 */
#ifndef EFFECT_ATTEMPT_H
#define EFFECT_ATTEMPT_H

#include "effect.h"

/* Who asks, and for what */
typedef struct Attempt
{
	Action		action;
	const char *target;
	Jsonb	   *inputs;
	char		digest[65];		/* of the consequential inputs */
	char	   *job_key;		/* NULL: the effect is its own lease */
	int64		token;
	char	   *terms_shown;
	char	   *run_id;
	pg_uuid_t  *nonce;
	bool		submit;			/* begin, not claim */
	bool		same;			/* what this attempt has claimed is submitted */
	bool		new_likely;		/* of a batch: the one before was new */
	bool		checked;		/* the next two are known */
	bool		fenced;			/* its token is superseded */
	bool		quarantined;	/* nothing is sent from here */
} Attempt;

extern char attempt_quarantined[];
extern char attempt_locked[];

extern EffectVerdict attempt_go(void);
extern EffectVerdict attempt_judge(const Effect *effect, const Attempt *attempt, char **detail);
extern bool attempt_is_askers(const Effect *effect, const char *job_key, int64 token);
extern char *attempt_unknown_detail(const Effect *effect);
extern bool attempt_same_nonce(const Effect *effect, pg_uuid_t *nonce);
extern void attempt_take(Effect *effect, const Attempt *attempt);
extern EffectVerdict attempt_taken(const Attempt *attempt, Effect *effect, char **detail);

#endif							/* EFFECT_ATTEMPT_H */
