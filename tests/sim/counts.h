/* Counts of what happened in worlds, and the coincidences that occurred in them. */
#pragma once

#include <stdint.h>

/* How often each thing happened; printed with these names. */
#define COUNTS(x)                                                                           \
        x(events, "events"), x(frames, "frames"), x(lost_frames, "lost"),                   \
                x(crashes, "crashes"), x(kills, "of them kills"),                           \
                x(power, "power losses after a kill"), x(partitions, "partitions"),         \
                x(spells, "slow spells"), x(bursts, "bursts on narrow links"),              \
                x(stalls, "stalled disks"), x(full, "full disks"),                          \
                x(damaged_disks, "damaged disks"), x(refused_disks, "disks refused"),       \
                x(replaced, "members replaced"), x(doubled, "second processes"),            \
                x(unknowable, "older copies that nobody could know"),                       \
                x(upgrades, "replicas upgraded"), x(downgrades, "downgraded"),              \
                x(agents_upgraded, "agents upgraded"),                                      \
                x(agents_downgraded, "agents downgraded"),                                  \
                x(upgrades_finished, "upgrades finished"),                                  \
                x(upgrades_refused, "not yet finished"),                                    \
                x(outdated, "outdated replicas refused"), x(pauses, "pauses"),              \
                x(suspends, "suspends"), x(steps, "steps of clocks"),                       \
                x(changes, "changes of members"), x(transfers, "leaders moved"),            \
                x(compactions, "compactions"), x(failed_allocations, "failed allocations"), \
                x(exits, "exits"), x(leaders, "elections"), x(grants, "grants"),            \
                x(renewals, "renewals"), x(expiries, "expiries"), x(writes, "writes"),      \
                x(reads, "reads"), x(delivered, "events delivered"), x(held, "locks held"), \
                x(handed, "locks handed over"), x(cached, "reads from caches"),             \
                x(recalled, "recalls"), x(groups, "groups put"),                            \
                x(shared, "shared tasks begun"), x(holder_deaths, "holders' deaths"),       \
                x(resumed, "resumed"), x(holder_losses, "holders' losses"),                 \
                x(refusals, "names refused"), x(late, "late endpoints"),                    \
                x(published, "services that came or went"), x(leaves, "leaves"),            \
                x(silences, "silent endpoints"),                                            \
                x(changes_delivered, "changes delivered to holders"),                       \
                x(astray, "endpoints led astray"), x(emptied, "other cores emptied"),       \
                x(forced, "cores forced"), x(disarmed, "alarms disarmed"),                  \
                x(names_granted, "named leases"), x(names_used, "used names refused"),      \
                x(names_renewed, "renewals by name"), x(names_put, "puts by name"),         \
                x(places, "places taken"), x(guarded, "guarded writes"),                    \
                x(guards, "guarded writes refused"), x(guards_late, "of them late"),        \
                x(added, "members added"), x(io_errors, "errors of disks"),                 \
                x(units_started, "units started"), x(unit_restarts, "by Restart="),         \
                x(units_asked, "asked for by people"), x(units_refused, "of them refused"), \
                x(units_late, "stopped late"), x(unit_forks, "children forked"),            \
                x(unit_kills, "processes killed"), x(freezes, "groups frozen"),             \
                x(hangs, "agents that hang"), x(reboots, "reboots ordered"),                \
                x(renames, "hosts renamed"), x(unfenced, "units that nobody could stop"),   \
                x(rests, "hosts that rest"), x(slowed, "hosts slowed down"),                \
                x(hashes, "hashes compared"), x(quota_alarms, "alarms of the quota"),       \
                x(deleted_full, "deletions meanwhile"), x(logins, "logins"),                \
                x(permitted, "permitted"), x(denied, "denied"), x(probes, "good probes"),   \
                x(bulk, "transactions in bulk"), x(hoarded, "changes of many keys"),        \
                x(pages, "pages of them read"), x(parts, "watches' responses in parts"),    \
                x(progress, "watches told of progress"), x(dozed, "locks without a lease"), \
                x(modest, "requests beside greedy clients"), x(heard, "users told of changes")

/* Conditions that must coincide for some bugs to show. A run of many worlds lists those that
 * never occurred. */
#define COINCIDENCES(x)                                                                      \
        x(truncated_in_flight, "a truncation with a write in flight"),                       \
                x(acked_crash, "a crash right after an acknowledgement to the leader"),      \
                x(confirmed_crash, "a crash right after an acknowledgement to a client"),    \
                x(voted_crash, "a vote across a crash"),                                     \
                x(torn_crash, "a crash in the middle of a write"),                           \
                x(unsynced_start, "a start that finds what was never synced"),               \
                x(install_election, "a snapshot's installation across an election"),         \
                x(install_crash, "a crash while a snapshot is installed"),                   \
                x(install_error, "an error of a disk while a snapshot is installed"),        \
                x(install_full, "a full disk while a snapshot is installed"),                \
                x(load_slice, "a snapshot that is half loaded when others have their turn"), \
                x(load_dropped, "an installation that is abandoned while it loads"),         \
                x(install_damage, "a snapshot that is damaged on its way"),                  \
                x(doubled, "a second process told to stop while the member goes on"),        \
                x(unknown, "a proposal that this version does not know"),                    \
                x(save_election, "a snapshot being taken across an election"),               \
                x(save_compaction, "a snapshot being taken while a compaction comes"),       \
                x(change_election, "a change of members across an election"),                \
                x(change_crash, "a crash with a change of members not yet committed"),       \
                x(alone_start, "a start of the only voter of several members"),              \
                x(removed_stands, "a term of one who was removed"),                          \
                x(lost_proposal, "a proposal on a link that broke"),                         \
                x(stalled_term, "a term that begins while a disk is stalled"),               \
                x(full_election, "a full disk during an election"),                          \
                x(full_expiry, "a lease that expires while all disks are full"),             \
                x(full_renewal, "a renewal while all disks are full"),                       \
                x(two_leaders, "two who lead at once, in different terms"),                  \
                x(slept_term, "a leader that was paused for a whole election"),              \
                x(transfer_crash, "a crash of the leader while it hands over"),              \
                x(cache_refused, "a cache that gets no term because a write waits"),         \
                x(cache_deaf, "a write that waits for a cache that does not hear"),          \
                x(refused, "a write refused because too much waits"),                        \
                x(greedy_refused, "a client refused that has its share"),                    \
                x(late_renewal, "a lease that expires with a renewal on its way"),           \
                x(read_across, "a read across a change of leader"),                          \
                x(covered, "a renewal that needs no entry"),                                 \
                x(covered_across, "a renewal without an entry across a change of leader"),   \
                x(write_across, "a write across a change of leader"),                        \
                x(behind_watch, "a watcher that resumes on a replica that is behind"),       \
                x(compacted_watch, "a watcher that resumes at what was compacted"),          \
                x(segment_crash, "a crash right after the log's next segment was begun"),    \
                x(both_crash, "a crash in the middle of a write of the log and one beside"), \
                x(spare_aside, "a file of the log that is begun beside a snapshot"),         \
                x(overtaken, "a write of the log that ends before an older one beside"),     \
                x(apply_slice, "an entry that is half applied when others have their turn"), \
                x(alloc_apply, "an allocation that fails while a command is applied"),       \
                x(alloc_load, "an allocation that fails while a snapshot is loaded"),        \
                x(alloc_start, "an allocation that fails at start"),                         \
                x(foreign_held, "a holder that asks another cluster"),                       \
                x(emptied_held, "a holder that asks an emptied core"),                       \
                x(moved_world, "an agent that begins anew in another core"),                 \
                x(moved_back, "an agent that finds back from another core"),                 \
                x(emptied_ahead, "a watch that goes on where another core is further"),      \
                x(forced_beside, "a core that is forced while the majority lives on"),       \
                x(forced_twice, "two cores that are forced from one"),                       \
                x(followed_heir, "an agent that goes on in a forced core with its lease"),   \
                x(sibling_met, "a forced core that is shown another one"),                   \
                x(moved_watch, "a watch that has to move while changes happen"),             \
                x(heartbeat_beside, "a heartbeat while the membership waits for an answer"), \
                x(guard_froze, "a guard that freezes units"),                                \
                x(guard_stopped, "a guard that stops units"),                                \
                x(thawed, "units that a late renewal thaws"),                                \
                x(stopping_start, "an agent that starts while units stop"),                  \
                x(deaf_deadline, "a place that ends while the service manager hangs"),       \
                x(outlived, "processes that outlive their unit"),                            \
                x(slept_place, "a place that ends while its host sleeps"),                   \
                x(page_compacted, "a read in pages of what is compacted meanwhile")
#define COUNT_FIELD(field, name) field
#define COUNT_NAME(field, name) name

struct counts {
        uint64_t COUNTS(COUNT_FIELD);
};

struct coincidences {
        uint64_t COINCIDENCES(COUNT_FIELD);
};
