"""The page: what a browser shows of the service."""

from tsucb.service.http import Answer, Problem, Request
from tsucb.service.keys import Holder
from tsucb.service.metrics import Metrics
from tsucb.service.service import Service


class Page:
    """Answers what no protocol answers."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self.service, self.metrics = service, metrics

    def key_of(self, request: Request) -> str:
        return ""

    def problem(self, problem: Problem) -> Answer:
        return Answer(problem.status, problem.message.encode(), b"text/plain", problem.headers)

    async def answer(self, request: Request, holder: Holder | None) -> Answer:
        raise Problem(404, "NotFound", "there is no such page")
