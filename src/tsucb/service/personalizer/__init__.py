"""The protocol of Azure Personalizer, in all three generations, for the clients that speak it.

    /personalizer/v1.0/…
    /personalizer/v1.1-preview.N/…
    /personalizer/…?api-version=2022-09-01-preview

The key selects the loop. Words of theirs in words of ours: action = arm, event = decision,
exploration percentage = floor, learning settings = policy, apprentice mode = the same.

| module | what it has |
|---|---|
| `routes` | how a request is answered, in which generation; times as clients write them |
| `events` | rank, reward, activate, for one place or several |
| `configuration` | the settings of a loop and of learning; what was learned, and the log |
| `evaluations` | what the log says about other policies, and which features matter |
"""

# The modules add their operations to those of `routes`.
from tsucb.service.personalizer import configuration as configuration
from tsucb.service.personalizer import evaluations as evaluations
from tsucb.service.personalizer import events as events
from tsucb.service.personalizer.routes import Personalizer as Personalizer
