# effect: leases with fencing tokens and a ledger of outside effects
#
#   make && make install        with any PG_CONFIG=/path/to/pg_config, PostgreSQL 15 and later
#   make installcheck           against the server that PG* variables name
#   test/run                    everything, on a throw-away cluster

EXTENSION    = effect
EXTVERSION   = $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" effect.control)

MODULE_big   = effect
OBJS         = $(patsubst %,src/%.o,effect sql direct args key facts canonical journal cluster lease run claim firing job checkpoint run_job fence \
                 fenced_table ledger registry action approval attempt submit explain outcome inside resolve resolver sweep retention stats guard acl)

# The install script is these pieces in this order, one a room.
PIECES       = sql/00-effect.sql sql/05-journal.sql sql/07-cluster.sql sql/10-key.sql \
               sql/20-job.sql sql/30-lease.sql sql/40-fence.sql sql/45-action.sql \
               sql/50-ledger.sql sql/55-approval.sql sql/60-resolve.sql sql/65-sweep.sql \
               sql/70-checkpoint.sql sql/75-run-job.sql sql/77-stats.sql sql/78-dashboard.sql \
               sql/80-guard.sql sql/90-acl.sql
SCRIPT       = sql/effect--$(EXTVERSION).sql
DATA_built   = $(SCRIPT)
DATA         = $(filter-out $(SCRIPT),$(wildcard sql/effect--*--*.sql))

REGRESS      = install key lease fence ledger once resolve action approval sweep retention \
               job firing checkpoint run_job stats attention explain dashboard \
               cluster guard direct acl lint issues
# the vectors hold every kind of character
ENCODING     = UTF8
REGRESS_OPTS = --inputdir=test --load-extension=pgtap
ISOLATION    = $(sort $(basename $(notdir $(wildcard test/specs/iso_*.spec))))
ISOLATION_OPTS = --inputdir=test --outputdir=.

PG_CFLAGS    = -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers

EXTRA_CLEAN  = $(SCRIPT) output_iso log results tmp_check tmp_check_iso

PG_CONFIG   ?= pg_config
PGXS        := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# PGXS does not track headers.
$(OBJS): $(wildcard src/*.h)

$(SCRIPT): $(PIECES)
	cat $^ > $@
