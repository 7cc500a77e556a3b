"""The decision service: agents behind HTTP, from one log of events.

    request ──▶ http ──▶ native or personalizer ──▶ Service ──fill──▶ Loop (a Learner)  ──▶ event
                                                       ▲                                      │
                                     answer ◀──────────┤                                      ▼
                                                       └── fold ◀── position ◀─── Ledger ──▶ Store

A *loop* is a named decision problem. What it knows is a *fold* of its *events* (`events`): settings
changed, arms added, decided, rewarded, activated, time passed. Nothing but `Loop.fold` changes a
loop, and it folds only what the store has made durable; so memory is never ahead of the log, an
answer is never ahead of the disk, and the log alone gives the same state again, to the last bit.
Deciding is looking: `Question.fill` asks the learner and changes nothing.

| module | what it is |
|---|---|
| `settings` | how a loop is configured |
| `events` | what can happen to a loop, and its form in the log |
| `loop`, `state` | the fold: waits for rewards, tells learner and sums; and what it knows |
| `store`, `sqlite`, `postgres` | one SQL schema and one `write` for events, erasures, keys, audit |
| `spool` | decisions made while the database is away |
| `scheduling` | a clock that never goes back; work that is not quick, each loop's in order |
| `ledger` | the log and the loops it has led to: group commit (many requests, one flush), folding |
| `replay` | how the log makes a loop again, also one with another model |
| `upkeep` | what happens without being asked: waits end, snapshots, other servers, retention |
| `questions`, `service` | what a decision is asked for; what can be asked of loops |
| `keys`, `errors` | who may do what, and what can be wrong |
| `application`, `http` | how requests arrive and how many; requests, answers and operations |
| `native`, `personalizer/`, `page`, `views` | protocols, thin |
| `monitoring` | alerts, and counts for Prometheus |
| `openapi` | the protocol described for programs |
| `export` | the log as the library's tools read it, by one more fold; comparisons on it |
| `server` | the process: its settings, keys on the first start, uvicorn |
| `client` | the Python client of the native protocol |
| `demo` | simulated visitors |

Every change of state is one `Transaction` of the store: events, erasures, keys, documents and
the audit trail. Events that erase, and changes of the model, make every server build the loop from
the log again while the old one decides.

The clock is an argument everywhere. Time in a loop is the time of its events: before an event is
folded, every wait that ended by then ends; when no event comes, the service writes that time
passed.
"""

from tsucb.extras import require

require("serve", "msgspec", "apsw", "uvicorn", "httptools", "httpx", "prometheus_client")
