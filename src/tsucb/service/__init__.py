"""The decision service: agents behind HTTP, from one log of events.

    request ──▶ http ──▶ native or personalizer ──▶ Service ──fill──▶ Loop (a Learner)  ──▶ event
                                                       ▲                                      │
                                     answer ◀──────────┤                                      ▼
                                                       └── fold ◀── position ◀─── Ledger ──▶ Store

A *loop* is a named decision problem. Its state is a *fold* of its *events* (`events`): settings
changed, arms added, decided, rewarded, activated, time passed. Only `Loop.fold` changes a loop, and
it folds only events that the store has made durable. So memory is never ahead of the log, no answer
is sent before its event is on the disk, and the log alone gives the same state again, to the last
bit. To decide is to read the state: `Question.fill` asks the learner and changes nothing.

| module | what it is |
|---|---|
| `settings` | the settings of a loop |
| `events` | what can happen to a loop, and how the log holds it |
| `loop`, `state` | the fold, and the state it leads to |
| `store`, `sqlite`, `postgres` | one SQL schema and one `write` for events, erasures, keys, audit |
| `spool` | decisions made while the database is away |
| `scheduling` | a clock that never goes back; slow work, in order for each loop |
| `ledger` | the log and its loops: group commit (many requests, one flush), then the fold |
| `replay` | loops made from the log again, also with another model |
| `upkeep` | what is due without a request: ends of waits, snapshots, other servers, retention |
| `questions`, `service` | questions that decisions answer; all operations on loops |
| `keys`, `errors` | who may do what; the errors of all protocols |
| `application`, `http` | limits of requests and connections; requests, answers, operations |
| `native`, `personalizer/`, `page`, `views` | the protocols, and the pages |
| `monitoring` | alerts, and metrics for Prometheus |
| `openapi` | the OpenAPI document of the native protocol |
| `export` | the log in the library's format, by one more fold; comparisons on it |
| `server` | the process: its settings, keys on the first start, uvicorn |
| `client` | the Python client of the native protocol |
| `demo` | simulated visitors |

Every change of state is one `Transaction` of the store: events, erasures, keys, documents and
the audit trail. After an event that erases others, or that changes the model, every server makes
the loop from the log again, while the old one decides.

Functions get the clock as an argument. The time of a loop is that of its events: before an event is
folded, all waits that ended by then end. If no event comes, the service writes that time passed.
"""

from tsucb.extras import require

require("serve", "msgspec", "apsw", "uvicorn", "httptools", "httpx", "prometheus_client")
