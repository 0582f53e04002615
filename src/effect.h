/*
 * effect.h
 *	  The words of effect, and what its rooms offer one another.
 *
 * A room is one concept: src/lease.c, sql/30-lease.sql, test/sql/lease.sql and
 * doc/lease.md speak of the same thing.  What two rooms need stands here.
 */
#ifndef EFFECT_H
#define EFFECT_H

#include "executor/spi.h"
#include "fmgr.h"
#include "storage/itemptr.h"
#include "utils/array.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "compat.h"
#include "errors.h"

/* Limits on everything a caller hands us, in bytes */
#define EFFECT_MAX_KEY		255		/* job_key, action */
#define EFFECT_MAX_TARGET	1024
#define EFFECT_MAX_LABEL	255		/* owner, firing, run_id */
#define EFFECT_MAX_REASON	2000
#define EFFECT_MAX_TERMS	20000
#define EFFECT_MAX_BODY		(8 * 1024 * 1024)	/* inputs, response, evidence, detail */
#define EFFECT_MAX_BATCH	100000	/* elements of one array */

/* No interval may be longer than this: 366 days, in microseconds */
#define EFFECT_MAX_INTERVAL	(INT64CONST(366) * USECS_PER_DAY)

/* An uncertain caller may ask again under its nonce for one minute */
#define EFFECT_NONCE_WINDOW	USECS_PER_MINUTE

/*
 * Advisory locks of our own: field4 of the lock tag is the class.  Users' own
 * advisory locks have 1 (one 64-bit key) or 2 (two 32-bit keys) there.  Below
 * 0x8000, since pg_locks shows the class as a smallint, in objsubid.
 */
#define EFFECT_LOCK_JOB		0x4F01	/* a job's lease; modes: see lease.c */
#define EFFECT_LOCK_QUEUE	0x4F02	/* the one claimer that may wait for a job */
#define EFFECT_LOCK_KEY		0x4F03	/* the one caller that may insert a key */
#define EFFECT_LOCK_CLUSTER	0x4F04	/* the one session that moves the epoch */
#define EFFECT_LOCK_EPOCH	0x4F05	/* grants in flight (RowShare), a step by hand (Exclusive) */
#define EFFECT_LOCK_SWEEP	0x4F06	/* the one session that sweeps */

/* Same order as the labels in ledger.c */
typedef enum EffectState
{
	STATE_CLAIMED,
	STATE_SUBMITTED,
	STATE_UNKNOWN,
	STATE_DONE
} EffectState;

typedef enum EffectVerdict
{
	VERDICT_RESERVED,
	VERDICT_GO,
	VERDICT_GO_AFTER_COMMIT,
	VERDICT_APPLY,
	VERDICT_DONE,
	VERDICT_CLOSED,
	VERDICT_BUSY,
	VERDICT_UNKNOWN,
	VERDICT_FENCED,
	VERDICT_UNAPPROVED,
	VERDICT_MISMATCH,
	VERDICT_QUARANTINED
} EffectVerdict;

/* effect.c: settings, in milliseconds */
extern int	effect_default_timeout;
extern int	effect_default_settle;
extern bool effect_require_registered_actions;
extern bool effect_require_registered_jobs;
extern char *effect_site;
extern int	effect_after_failover;
extern int	effect_resolve_backoff_max;
extern int	effect_stats_flush_interval;	/* seconds */
extern int	effect_fenced_log_level;

/* effect.after_failover */
typedef enum AfterFailover
{
	FAILOVER_TRUST,
	FAILOVER_QUARANTINE
} AfterFailover;

/* ---- sql.c: the one door to effect's own tables ---- */

#define SQL_MAX_ARGS 22

/* A statement with its kept plan; the fields after args belong to sql.c */
typedef struct SqlPlan
{
	const char *sql;
	int			nargs;
	Oid			args[SQL_MAX_ARGS];
	SPIPlanPtr	plan;
	char	   *search_path;
} SqlPlan;

typedef struct SqlArgs
{
	int			n;
	Datum		value[SQL_MAX_ARGS];
	char		null[SQL_MAX_ARGS];
} SqlArgs;

/* Who we were before we became the extension's owner */
typedef struct SqlScope
{
	Oid			user;
	int			security;
	MemoryContext caller;
} SqlScope;

typedef enum SqlProbe
{
	PROBE_ABSENT,
	PROBE_PRESENT,
	PROBE_IN_FLIGHT				/* inserted by a transaction still open */
} SqlProbe;

typedef void (*SqlForget) (Oid relid);

extern void sql_tell_of_changes(SqlForget forget);
extern Oid	sql_relation(const char *name);
extern Oid	sql_function(const char *name);
extern Oid	sql_owner(void);
extern void sql_open(SqlScope *scope);
extern void sql_close(SqlScope *scope);
extern uint64 sql_read(SqlPlan *plan, SqlArgs *args);
extern uint64 sql_write(SqlPlan *plan, SqlArgs *args);
extern void sql_arg(SqlArgs *args, Datum value, bool isnull);
extern void sql_arg_text(SqlArgs *args, const char *value);
extern void sql_arg_time(SqlArgs *args, TimestampTz value);
extern void sql_arg_jsonb(SqlArgs *args, Jsonb *value);
extern void sql_arg_uuid(SqlArgs *args, const pg_uuid_t *value);
extern bool sql_column(int column, Datum *value);
extern int64 sql_column_int(int column);
extern bool sql_column_copy(SqlScope *scope, int column, Datum *value);
extern char *sql_column_text(SqlScope *scope, int column);
extern TimestampTz sql_column_time(int column);
extern Jsonb *sql_column_jsonb(SqlScope *scope, int column);
extern pg_uuid_t *sql_column_uuid(SqlScope *scope, int column);
extern char **sql_rows_text(SqlScope *scope, int *n);
extern pg_uuid_t *sql_rows_uuid(SqlScope *scope, int from, int *n);
extern ErrorData *sql_try(void (*work) (void *), void *arg);
extern bool sql_is_ours(const char *relation, TransactionId xmin, ItemPointer tid);
extern SqlProbe sql_probe_key(const pg_uuid_t *key, bool wait);
extern bool lock_advisory(uint16 class, uint64 key, LOCKMODE mode, bool wait);
extern void unlock_advisory(uint16 class, uint64 key, LOCKMODE mode);

/* ---- args.c ---- */
extern char *arg_text(FunctionCallInfo fcinfo, int n, const char *name, int max_bytes);
extern char *arg_text_or_null(FunctionCallInfo fcinfo, int n, const char *name, int max_bytes);
extern int64 arg_token(FunctionCallInfo fcinfo, int n);
extern Jsonb *arg_jsonb(FunctionCallInfo fcinfo, int n, const char *name);
extern Jsonb *jsonb_from_text(const char *json);
extern pg_uuid_t *arg_uuid(FunctionCallInfo fcinfo, int n, const char *name);
extern char *arg_enum(FunctionCallInfo fcinfo, int n, const char *name);
extern void arg_check_text(const char *value, const char *name, int max_bytes);
extern void arg_check_jsonb(Jsonb *value, const char *name);
extern void arg_missing(const char *name);
extern Datum enum_datum(Oid type, const char *label);
extern TupleDesc call_result_type(FunctionCallInfo fcinfo);
extern Datum *arg_array(FunctionCallInfo fcinfo, int argument, const char *name, int *n);
extern char **arg_text_array(FunctionCallInfo fcinfo, int argument, const char *name,
							 int max_bytes, int *n);
extern void refuse_read_only(const char *function);
extern void begin_writing(const char *function);

/* ---- canonical.c, key.c, facts.c ---- */
extern void canonical_append(StringInfo out, Jsonb *document);
extern void canonical_append_fields(StringInfo out, Jsonb *inputs, ArrayType *fields);
extern void key_digest(Jsonb *inputs, char hex[65]);
extern void key_digest_none(char hex[65]);
extern void key_digest_fields(Jsonb *inputs, ArrayType *fields, char hex[65]);
extern void key_make(const char *action, int action_len, const char *target, int target_len,
					 const char *digest, int digest_len, pg_uuid_t *key);

/* ---- journal.c ---- */
typedef struct JournalEntry
{
	const char *event;
	const char *job_key;
	int64		token;			/* 0: none */
	const pg_uuid_t *key;
	int			attempt;		/* 0: none */
	const char *detail;
	Jsonb	   *evidence;
} JournalEntry;

extern void journal_add(const JournalEntry *entry);

/* ---- cluster.c ---- */
extern void cluster_check(void);
extern bool cluster_quarantined(void);
extern int64 cluster_first_token(SqlScope *scope);
extern TimestampTz cluster_moved_at(void);
extern void cluster_flush_commit(void);

/* ---- lease.c ---- */
typedef struct Lease
{
	char	   *owner;			/* NULL: free */
	int64		token;			/* 0: the job never had a lease */
	TimestampTz until;
	Interval	lease_for;
	char	   *firing;
	pg_uuid_t  *nonce;
	TimestampTz granted_at;
	bool		ours;			/* this row version was written by this transaction */
} Lease;

typedef enum TokenStanding
{
	TOKEN_CURRENT,
	TOKEN_SUPERSEDED,
	TOKEN_NEVER					/* higher than any committed one */
} TokenStanding;

extern bool lease_lock(const char *job_key, LOCKMODE mode, bool wait);
extern void lease_lock_all(void);
extern uint64 lease_hash(const char *job_key);
extern void lease_read(const char *job_key, Lease *lease);
extern void lease_read_in(SqlScope *scope, const char *job_key, Lease *lease);
extern TokenStanding lease_standing(const Lease *lease, int64 token);
extern bool lease_accepts(const char *job_key, int64 token, Lease *lease);
extern void lease_refused(const char *job_key, int64 token, const char *what);
extern int	lease_expire(const char *job_key);
extern TimestampTz lease_renew(const char *job_key, int64 token, Interval *lease_for);
extern bool lease_release(const char *job_key, int64 token, const char *outcome, Jsonb *detail);
extern void lease_grant(const char *job_key, const Lease *grant, bool first);
extern TimestampTz lease_end(TimestampTz now, Interval *lease_for);
extern int	lease_take_away(const char *job_key, const Lease *lease, const char *outcome,
							const char *event, const char *reason);

/* ---- run.c ---- */
extern void run_start(const char *job_key, const Lease *grant);
extern void run_close(const char *job_key, int64 token, const char *outcome, Jsonb *detail);
extern bool run_ended_so(const char *job_key, int64 token, const char *outcome);
extern bool run_came_back(const char *job_key, int64 token);

/* ---- claim.c ---- */
extern const char *claim_for_run(const char *job_key, const char *owner, const char *firing,
								 int64 *token, char **granted, Jsonb **checkpoint);

/* ---- job.c ---- */
typedef enum OverlapPolicy
{
	OVERLAP_COALESCE,
	OVERLAP_QUEUE,
	OVERLAP_FAIL
} OverlapPolicy;

typedef struct Job
{
	bool		registered;
	OverlapPolicy overlap;
	int			queue_limit;
	Interval   *lease_for;		/* NULL: comes with the claim */
	int64		at_least_for;	/* microseconds */
	bool		paused;
	bool		checkpoint_carries;
} Job;

extern void job_get(const char *job_key, Job *job);
extern void job_get_any(const char *job_key, Job *job);
extern bool job_lock(const char *job_key);
extern char *job_firing(const char *job_key, TimestampTz at);

/* ---- firing.c ---- */
typedef enum FiringState
{
	FIRING_NEW,
	FIRING_QUEUED,
	FIRING_SATURATED,
	FIRING_FINISHED
} FiringState;

extern FiringState firing_state(const char *job_key, const char *firing);
extern char *firing_oldest(SqlScope *scope, const char *job_key);
extern FiringState firing_enqueue(const char *job_key, const char *firing, int limit, TimestampTz since);
extern void firing_return(const char *job_key, const char *firing, TimestampTz since);
extern bool firing_queue_is_full(const char *job_key, int limit);
extern void firing_dequeue(const char *job_key, const char *firing);
extern void firing_finish(const char *job_key, const char *firing, int64 token);
extern void firing_notify(const char *event, const char *job_key, const char *firing);

/* ---- checkpoint.c ---- */
extern Jsonb *checkpoint_read(const char *job_key, const char *firing, bool carries);
extern void checkpoint_write(const char *job_key, const char *firing, bool carries, int64 token,
							 Jsonb *state);

/* ---- fence.c ---- */
extern void fence_add(const char *job_key, int64 token);
extern bool fence_taken(const char *job_key);

/* ---- action.c ---- */
typedef enum UnknownPolicy
{
	POLICY_CHECK,
	POLICY_RESEND,
	POLICY_DROP
} UnknownPolicy;

/* How a kind of effect is treated; times in microseconds, 0: not set */
typedef struct Action
{
	const char *name;
	bool		registered;
	char	   *registered_by;
	ArrayType  *key_fields;		/* NULL: all inputs */
	bool		by_target;		/* identity target */
	UnknownPolicy on_unknown;
	char	   *resolver;
	int64		settle;
	int64		timeout;
	int64		dedupes_for;
	int64		approve_within;
	int			approvals;
} Action;

extern void action_get(const char *name, bool to_use, Action *action);
extern Oid	action_resolver_function(const char *resolver, Oid role);
extern void action_key(const Action *action, const char *target, Jsonb *inputs,
					   char digest[65], pg_uuid_t *key);
extern bool action_may_resend(const Action *action, TimestampTz created_at);

/* ---- ledger.c: one effect as the ledger holds it ---- */
typedef struct Effect
{
	pg_uuid_t	key;
	char	   *action;
	char	   *target;
	char	   *job_key;		/* NULL: the effect is its own lease */
	char	   *run_id;
	int64		token;
	int64		highest_token;
	int			attempt;
	EffectState state;
	bool		held;
	char	   *ending;			/* completed, resolved, closed, applied */
	char	   *reason;
	char	   *terms_shown;
	Jsonb	   *inputs;			/* written at insert only, never read back here */
	char	   *inputs_digest;	/* where the key does not cover them; else NULL */
	Jsonb	   *response;
	pg_uuid_t  *nonce;
	TimestampTz busy_until;		/* 0: bounded by the lease */
	TimestampTz submitted_at;	/* 0: never */
	TimestampTz created_at;
	TimestampTz updated_at;
	bool		ours;			/* this row version was written by this transaction */
	ItemPointerData version;	/* where the row was locked; may be none */
	/* read beside it: */
	bool		alive;			/* its holder may still act */
	char	   *holder;			/* who holds its job, where one does */
	TimestampTz holder_until;
} Effect;

typedef enum EffectLock
{
	LOCK_NONE,
	LOCK_SKIP,
	LOCK_WAIT,
	LOCK_CHANGE					/* as an UPDATE takes it; waits */
} EffectLock;

extern bool ledger_read_row(const pg_uuid_t *key, EffectLock lock, Effect *effect);
extern bool ledger_read(const pg_uuid_t *key, EffectLock lock, Effect *effect);
extern SqlProbe ledger_insert(Effect *effect);
extern const char *ledger_state_label(const Effect *effect);
extern void ledger_write(Effect *effect);
extern void ledger_set_unknown(Effect *effect, const char *reason, Jsonb *late_answer);
extern bool ledger_is_unknown(const Effect *effect);
extern char *ledger_mismatch(const Effect *effect, Jsonb *inputs, ArrayType *fields);
extern void ledger_resend(Effect *effect);
extern void ledger_list(const pg_uuid_t *key);
extern void ledger_list_straggler(const Effect *effect);
extern void ledger_close(Effect *effect, const char *reason, Jsonb *response);
extern void ledger_journal(const Effect *effect, const char *event, int64 token,
						   const char *detail, Jsonb *evidence);
extern void ledger_clear_unknown(const pg_uuid_t *key);
extern void ledger_missing(const pg_uuid_t *key);
extern int	ledger_abandon(const char *job_key, int64 token, const char *reason);
extern Datum ledger_answer(FunctionCallInfo fcinfo, const Effect *effect,
						   EffectVerdict verdict, const char *detail);
extern void ledger_answer_row(FunctionCallInfo fcinfo, const Effect *effect,
							  EffectVerdict verdict, const char *detail, const char *target);
extern EffectVerdict ledger_done_verdict(const Effect *effect, char **detail);

/* attempt.c */
extern char *attempt_busy_detail(const Effect *effect, const char *job_key, int64 token);
extern Jsonb *attempt_inputs(FunctionCallInfo fcinfo, int n);
extern bool attempt_stands_alone(void);
extern bool attempt_holds(const Effect *effect, int64 token);

/* ---- resolve.c, resolver.c ---- */
typedef enum Finding
{
	FOUND_HAPPENED,
	FOUND_ABSENT,
	FOUND_UNCLEAR
} Finding;

typedef struct Resolution
{
	Finding		finding;
	int			attempt;		/* 0: not named */
	Jsonb	   *evidence;
	Jsonb	   *response;
} Resolution;

extern Finding resolve_finding(const char *label);
extern void resolve_write(Effect *effect, const Resolution *found);
extern void resolver_sweep(int limit, TimestampTz until, int found[3]);

/* ---- retention.c ---- */
extern bool retention_deletes;
extern void retention_prune(int *bodies, int *keys);

/* ---- stats.c ---- */
typedef enum StatsKind
{
	STATS_JOB,
	STATS_ACTION
} StatsKind;

/* Same order as the labels in stats.c: of jobs, then of actions */
typedef enum Counter
{
	COUNT_GRANTED, COUNT_HELD, COUNT_COALESCED, COUNT_QUEUED, COUNT_SATURATED, COUNT_ALREADY_RAN,
	COUNT_COOLING_DOWN, COUNT_PAUSED, COUNT_QUARANTINED, COUNT_OVERLAPPED, COUNT_STOLEN, COUNT_EXPIRED,
	COUNT_REVOKED, COUNT_FINISHED, COUNT_FAILED, COUNT_RENEWED, COUNT_FENCED,
	COUNT_RESERVED, COUNT_GO, COUNT_APPLIED, COUNT_COMPLETED, COUNT_DUPLICATES, COUNT_CLOSED,
	COUNT_BUSY, COUNT_BLOCKED, COUNT_UNAPPROVED, COUNT_MISMATCH, COUNT_RETRACTED, COUNT_LOST,
	COUNT_FOUND_HAPPENED, COUNT_FOUND_ABSENT, COUNT_RESENT, COUNT_LATE_ANSWERS, COUNT_DOUBLES,
	COUNT_SAME_TRANSACTION,
	COUNTER_COUNT
} Counter;

extern void stats_count(StatsKind kind, const char *name, Counter counter);
extern void stats_deed(StatsKind kind, const char *name, Counter counter);
extern void stats_deeds(StatsKind kind, const char *name, Counter counter, int64 n);
extern void stats_verdict(const char *action, EffectVerdict verdict);
extern void stats_fenced(const char *job_key, int64 token, const char *what);
extern void stats_ride(void);
extern void stats_flush_if_due(void);
extern void stats_fold(int limit);

/* ---- approval.c ---- */
extern int	approval_look(const Effect *effect, const Action *action, TimestampTz now,
						  TimestampTz *deadline);
extern EffectVerdict approval_spend(Effect *effect, const Action *action, char **detail);

#endif							/* EFFECT_H */
