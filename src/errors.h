/*
 * errors.h
 *	  The SQLSTATEs of effect, class LE.
 *
 * One line each; doc/reference.md says what a client does with them, and each
 * is raised by a test.  A number is a promise: it never changes its meaning.
 */
#ifndef EFFECT_ERRORS_H
#define EFFECT_ERRORS_H

/* your token is superseded: stop, never retry */
#define ERRCODE_EFFECT_FENCED			MAKE_SQLSTATE('L','E','0','0','1')
/* the job's policy is fail, and a run is live */
#define ERRCODE_EFFECT_OVERLAP			MAKE_SQLSTATE('L','E','0','0','2')
/* no such job, run, token or effect here */
#define ERRCODE_EFFECT_NOT_FOUND		MAKE_SQLSTATE('L','E','0','0','3')
/* the effect's state does not allow this step */
#define ERRCODE_EFFECT_ILLEGAL_STEP		MAKE_SQLSTATE('L','E','0','0','4')
/* the terms differ from those that were shown */
#define ERRCODE_EFFECT_TERMS_DIFFER		MAKE_SQLSTATE('L','E','0','0','5')
/* the approval is already spent */
#define ERRCODE_EFFECT_APPROVAL_SPENT	MAKE_SQLSTATE('L','E','0','0','6')
/* a write to a table that requires a fence, in a transaction without one */
#define ERRCODE_EFFECT_NO_FENCE			MAKE_SQLSTATE('L','E','0','0','7')
/* too early to say that it did not happen: the request may be in flight */
#define ERRCODE_EFFECT_TOO_EARLY		MAKE_SQLSTATE('L','E','0','0','8')
/* a finding about another attempt than the current one */
#define ERRCODE_EFFECT_OTHER_ATTEMPT	MAKE_SQLSTATE('L','E','0','0','9')
/* the attempt is still in flight under a live holder */
#define ERRCODE_EFFECT_IN_FLIGHT		MAKE_SQLSTATE('L','E','0','1','0')
/* quarantined: an operator's call that needs effect.adopt_cluster() first */
#define ERRCODE_EFFECT_QUARANTINED		MAKE_SQLSTATE('L','E','0','1','1')
/* a guard on effect's own tables refused the row */
#define ERRCODE_EFFECT_GUARDED			MAKE_SQLSTATE('L','E','0','1','2')

#endif							/* EFFECT_ERRORS_H */
