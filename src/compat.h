/*
 * compat.h
 *	  Every difference between PostgreSQL majors that effect has to know.
 *
 * No other file compares PG_VERSION_NUM.
 */
#ifndef EFFECT_COMPAT_H
#define EFFECT_COMPAT_H

#if PG_VERSION_NUM < 150000
#error "effect needs PostgreSQL 15 or later"
#endif

/* 16 gave varlena macros a header of their own */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "utils/acl.h"

/* 16 folded pg_class_ownercheck() and its kin into one */
#if PG_VERSION_NUM >= 160000
#define compat_owns_relation(relid, roleid) \
	object_ownercheck(RelationRelationId, (relid), (roleid))
#define compat_may_execute(funcid, roleid) \
	(object_aclcheck(ProcedureRelationId, (funcid), (roleid), ACL_EXECUTE) == ACLCHECK_OK)
#else
#define compat_owns_relation(relid, roleid) \
	pg_class_ownercheck((relid), (roleid))
#define compat_may_execute(funcid, roleid) \
	(pg_proc_aclcheck((funcid), (roleid), ACL_EXECUTE) == ACLCHECK_OK)
#endif

/* 16 can report a bad name softly */
#if PG_VERSION_NUM >= 160000
#define compat_name_list(name) stringToQualifiedNameList((name), NULL)
#else
#define compat_name_list(name) stringToQualifiedNameList(name)
#endif

/* 17 asks the process for its type */
#if PG_VERSION_NUM >= 170000
#define compat_in_background_worker() AmBackgroundWorkerProcess()
#else
#define compat_in_background_worker() IsBackgroundWorker
#endif

/* 16 tells EvalPlanQual which relations are its targets */
#if PG_VERSION_NUM >= 160000
#define compat_epq_init(epq, estate) EvalPlanQualInit((epq), (estate), NULL, NIL, -1, NIL)
#else
#define compat_epq_init(epq, estate) EvalPlanQualInit((epq), (estate), NULL, NIL, -1)
#endif

/* 18 gave index scans a slot for instrumentation */
#if PG_VERSION_NUM >= 180000
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan((heap), (index), (snapshot), NULL, (nkeys), 0)
#else
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan((heap), (index), (snapshot), (nkeys), 0)
#endif

#endif							/* EFFECT_COMPAT_H */
