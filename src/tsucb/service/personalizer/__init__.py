"""The protocol of Azure Personalizer, in all three generations of its clients.

    /personalizer/v1.0/…
    /personalizer/v1.1-preview.N/…
    /personalizer/…?api-version=2022-09-01-preview

The key selects the loop. Personalizer's words and ours: action = arm, event = decision,
exploration percentage = floor, learning settings = policy.

| module | what it has |
|---|---|
| `routes` | how a request is answered, and for which generation; times as clients write them |
| `events` | rank, reward and activate, for one slot or several |
| `configuration` | the settings of a loop, its policy, its model and its log |
| `evaluations` | evaluations of other policies on the log, and feature importances |
"""

# These modules add their operations to `routes.ROUTES`.
from tsucb.service.personalizer import configuration as configuration
from tsucb.service.personalizer import evaluations as evaluations
from tsucb.service.personalizer import events as events
from tsucb.service.personalizer.routes import Personalizer as Personalizer
