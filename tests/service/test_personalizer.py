"""Personalizer's protocol, spoken by its own Python clients, over http and https."""

import datetime
import io
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.conftest import PATIENCE, Clock
from tests.service.serving import served

new = pytest.importorskip("azure.ai.personalizer", reason="azure-ai-personalizer is not installed")
old = pytest.importorskip(
    "azure.cognitiveservices.personalizer",
    reason="azure-cognitiveservices-personalizer is not installed",
)
from azure.core.credentials import AzureKeyCredential  # noqa: E402
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError  # noqa: E402
from msrest.authentication import CognitiveServicesCredentials  # noqa: E402
from msrest.exceptions import HttpOperationError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ACTIONS = [
    {"id": "tea", "features": [{"taste": {"hot": True, "sugar": 0.1}}]},
    {"id": "milk", "features": [{"taste": {"hot": False}, "_hidden": 1}]},
    {"id": "juice", "features": [{"tags": [1, 2]}]},
    {"id": "water", "features": []},
]
CONTEXT = [{"time": {"hour": 9, "weekend": False}}, {"city": "Zürich"}]
IDS = ["plain", "a/b c", "münchen/straße ñ", "50%+1?x=1#y", "日本"]
SETTINGS = {"exploration": 0.2, "reward_wait": 600.0, "reward_range": (-1.0, 1.0)}


@pytest.fixture(params=["http", "https"])
def drinks(request, tmp_path: Path, clock: Clock):
    tls = request.getfixturevalue("certificate") if request.param == "https" else None
    with served(tmp_path / "data", clock, tls=tls, **SETTINGS) as found:
        found.verify = tls[0] if tls else True
        yield found


def new_client(drinks: Any, role: str = "decide", kind: str = "PersonalizerClient") -> Any:
    credential = AzureKeyCredential(drinks.keys[role])
    client = getattr(new, kind)(
        drinks.url, credential, connection_verify=drinks.verify, retry_total=2
    )
    drinks.clients.append(client._client)
    return client


def old_client(drinks: Any) -> Any:
    credential = CognitiveServicesCredentials(drinks.keys["decide"])
    client = old.PersonalizerClient(drinks.url, credential)
    client.config.connection.verify = drinks.verify
    client.config.keep_alive = True  # or every request opens a connection of its own
    drinks.clients.append(client)
    return client


def pulls(drinks: Any) -> int:
    return int(drinks.loop.arms_summary()["pulls"].sum())


def total(drinks: Any) -> float:
    table = drinks.loop.arms_summary()
    return float((table["pulls"] * table["mean_reward"].fillna(0)).sum())


def test_the_new_client_ranks_and_rewards(drinks, clock):
    client = new_client(drinks)
    request = {"actions": ACTIONS, "contextFeatures": CONTEXT, "excludedActions": ["juice"]}
    answer = client.rank(request)
    chances = {each["id"]: each["probability"] for each in answer["ranking"]}
    assert set(chances) == {"tea", "milk", "juice", "water"}
    assert answer["ranking"][2] == {"id": "juice", "probability": 0.0}  # excluded: keeps its place
    assert sorted(chances.values()) == pytest.approx([0, 0.2 / 3, 0.2 / 3, 0.8 + 0.2 / 3])
    assert answer["rewardActionId"] == answer["ranking"][0]["id"]
    client.reward(answer["eventId"], {"value": 1.0})
    assert (pulls(drinks), total(drinks)) == (1, 1.0)


@pytest.mark.parametrize("id", IDS)
def test_ids_survive_the_path(drinks, id):
    client, former = new_client(drinks), old_client(drinks)
    answer = client.rank(
        {"actions": ACTIONS, "contextFeatures": CONTEXT, "eventId": id, "deferActivation": True}
    )
    assert answer["eventId"] == id
    client.activate(id)
    client.reward(id, {"value": 0.5})
    assert total(drinks) == 0.5
    actions = [old.models.RankableAction(id=a["id"], features=a["features"]) for a in ACTIONS]
    former.rank(
        old.models.RankRequest(
            actions=actions, context_features=CONTEXT, event_id=id + "!", defer_activation=True
        )
    )
    former.events.activate(id + "!")
    former.events.reward(id + "!", 0.25)
    assert total(drinks) == 0.75


def test_the_old_client_ranks_and_complains(drinks):
    client = old_client(drinks)
    actions = [old.models.RankableAction(id=a["id"], features=a["features"]) for a in ACTIONS]
    answer = client.rank(old.models.RankRequest(actions=actions, context_features=CONTEXT))
    assert answer.reward_action_id in {"tea", "milk", "juice", "water"}
    assert sum(each.probability for each in answer.ranking) == pytest.approx(1)
    client.events.reward(answer.event_id, 1.0)
    assert total(drinks) == 1.0
    with pytest.raises(HttpOperationError) as failure:
        client.events.reward("never", 1.0)
    assert failure.value.response.status_code == 404
    with pytest.raises(old.models.ErrorResponseException) as error:
        client.rank(old.models.RankRequest(actions=[], context_features=CONTEXT))
    assert "1 to 50 actions" in error.value.error.error.message


def test_several_slots(drinks, clock):
    client = new_client(drinks)
    slots = [
        {"id": "top/1", "features": [{"size": "large"}], "baselineAction": "tea"},
        {"id": "side", "positionFeatures": [{"size": "small"}], "baselineAction": "milk",
         "excludedActions": ["juice"]},
    ]  # fmt: skip
    request = {"actions": ACTIONS, "contextFeatures": CONTEXT, "slots": slots, "eventId": "m/1"}
    answer = client.rank_multi_slot(request)
    chosen = {slot["id"]: slot["rewardActionId"] for slot in answer["slots"]}
    assert list(chosen) == ["top/1", "side"]
    assert len(set(chosen.values())) == 2
    assert chosen["side"] != "juice"
    client.reward_multi_slot("m/1", {"reward": [{"slotId": "top/1", "value": 1.0}]})
    assert total(drinks) == 1.0
    with pytest.raises(HttpResponseError, match="no slot 'bottom'"):
        client.reward_multi_slot("m/1", {"reward": [{"slotId": "bottom", "value": 1.0}]})
    client.rank_multi_slot({**request, "eventId": "m/2", "deferActivation": True})
    client.activate_multi_slot("m/2")
    with pytest.raises(HttpResponseError, match="more slots than actions"):
        client.rank_multi_slot({**request, "actions": ACTIONS[:1], "eventId": "m/3"})
    clock.pass_by(601)
    client.rank({"actions": ACTIONS})
    assert pulls(drinks) == 4


def test_waits_and_activation_as_personalizer_has_them(drinks, clock):
    client = new_client(drinks)
    for id in ("late", "deferred", "activated", "in time"):
        defer = id in ("deferred", "activated")
        client.rank({"actions": ACTIONS, "eventId": id, "deferActivation": defer})
    clock.pass_by(599)
    client.activate("activated")
    client.reward("activated", {"value": 1.0})
    client.reward("in time", {"value": 1.0})
    clock.pass_by(2)
    client.reward("late", {"value": 1.0})  # accepted, kept, not learned
    client.reward("deferred", {"value": 1.0})
    with pytest.raises(HttpResponseError, match="can no longer be activated") as error:
        client.activate("deferred")
    assert error.value.error.code == "InvalidEventIdToActivate"
    assert (pulls(drinks), total(drinks)) == (3, 2.0)
    assert drinks.loop.counts.never_activated == 1


def test_configuration(drinks):
    client = new_client(drinks, "administer", "PersonalizerAdministrationClient")
    found = client.get_service_configuration()
    assert found["rewardWaitTime"] == "PT10M"
    assert found["explorationPercentage"] == 0.2
    assert (found["rewardAggregation"], found["learningMode"]) == ("earliest", "Online")
    found |= {"rewardWaitTime": "PT5S", "defaultReward": 0.5, "rewardAggregation": "sum"}
    found |= {"explorationPercentage": 0.3, "learningMode": "Apprentice", "logRetentionDays": 30}
    again = client.update_service_configuration(found)
    assert again["logRetentionDays"] == 30
    assert client.get_service_configuration()["rewardWaitTime"] == "PT5S"
    settings = drinks.loop.settings
    assert (settings.reward_wait, settings.default_reward, settings.mode) == (
        5.0,
        0.5,
        "apprentice",
    )
    for change, code in [
        ({"rewardWaitTime": "PT4S"}, "InvalidRewardWaitTime"),
        ({"rewardWaitTime": "P3D"}, "InvalidRewardWaitTime"),
        ({"rewardWaitTime": "soon"}, "InvalidServiceConfiguration"),
        ({"rewardAggregation": "mean"}, "InvalidServiceConfiguration"),
        ({"explorationPercentage": 1.5}, "InvalidServiceConfiguration"),
        ({"learningMode": "Off"}, "InvalidLearningModeServiceConfiguration"),
        ({"logMirrorEnabled": True, "logMirrorSasUri": "x"}, "InvalidServiceConfiguration"),
        ({"logRetentionDays": -2}, "InvalidLogRetentionDays"),
    ]:
        with pytest.raises(HttpResponseError) as error:
            client.update_service_configuration({**found, **change})
        assert error.value.error.code == code
        assert error.value.response.headers["x-ms-error-code"] == code
    assert drinks.loop.settings == settings


def test_an_apprentice_returns_the_first_action(drinks, clock):
    administration = new_client(drinks, "administer", "PersonalizerAdministrationClient")
    administration.update_service_configuration({"learningMode": "Apprentice"})
    client = new_client(drinks)
    for _ in range(5):
        answer = client.rank({"actions": ACTIONS, "excludedActions": ["tea"]})
        assert answer["rewardActionId"] == "milk"
        client.reward(answer["eventId"], {"value": 1.0})
    clock.pass_by(601)
    client.rank({"actions": ACTIONS})
    metrics = administration.get_service_configuration()["latestApprenticeModeMetrics"]
    assert (metrics["numberOfEvents"], metrics["sumOfRewards"]) == (5, 5.0)
    assert metrics["numberOfImitatedEvents"] <= 5


def test_policy_model_and_logs(drinks):
    client = new_client(drinks, "administer", "PersonalizerAdministrationClient")
    with pytest.raises(ResourceNotFoundError):
        client.get_log_properties()
    ranks = new_client(drinks)
    for n in range(6):
        answer = ranks.rank({"actions": ACTIONS, "contextFeatures": [{"n": n}]})
        ranks.reward(answer["eventId"], {"value": n / 10})
    policy = client.get_policy()
    assert policy["name"] == "TS-UCB(1)"
    changed = {"name": "mine", "arguments": '{"policy": "TS-UCB(3)"}'}
    assert client.update_policy(changed)["name"] == "TS-UCB(3)"
    assert client.reset_policy() == policy
    with pytest.raises(HttpResponseError, match="Vowpal Wabbit") as error:
        client.update_policy({"name": "vw", "arguments": "--cb_explore_adf --epsilon 0.2"})
    assert error.value.error.code == "InvalidPolicyConfiguration"
    # The model goes out, is forgotten, and comes back.
    model = b"".join(client.export_model())
    assert b"".join(client.export_model(signed=True)) == model
    before = drinks.loop.learner.digest()
    client.reset_model()
    assert pulls(drinks) == 0
    client.import_model(io.BytesIO(model))
    assert pulls(drinks) == 6
    with pytest.raises(HttpResponseError, match="not Vowpal Wabbit's") as error:
        client.import_model(io.BytesIO(b"\x08\x00\x00\x009.0.1\x00"))
    assert error.value.error.code == "InvalidModelImportFormat"
    with pytest.raises(HttpResponseError) as error:
        client.import_model(io.BytesIO(model[:-9]))
    assert set(client.get_model_properties()) == {"creationTime", "lastModifiedTime"}
    assert set(client.get_log_properties()["dateRange"]) == {"from", "to"}
    client.delete_logs()
    assert pulls(drinks) == 6  # the log goes, the model stays
    assert drinks.service.replayed(drinks.loop, False).digest() == drinks.loop.digest()
    assert before


def test_evaluations_of_both_generations(tmp_path, clock):
    with served(tmp_path / "data", clock, **{**SETTINGS, "exploration": 0.5}) as drinks:
        drinks.verify = True
        client = new_client(drinks, "administer", "PersonalizerAdministrationClient")
        ranks = new_client(drinks)
        start = datetime.datetime.fromtimestamp(clock(), datetime.UTC)
        for n in range(60):
            answer = ranks.rank({"actions": ACTIONS[:2], "contextFeatures": [{"n": n % 3}]})
            ranks.reward(answer["eventId"], {"value": float(answer["rewardActionId"] == "tea")})
            clock.pass_by(20)
        end = datetime.datetime.fromtimestamp(clock(), datetime.UTC)
        clock.pass_by(700)
        ranks.rank({"actions": ACTIONS[:2]})
        span = {"startTime": start.isoformat(), "endTime": end.isoformat(), "name": "first"}
        client.create_evaluation("e/1", span)
        deadline = time.monotonic() + 300  # the compiler may have to run
        while True:
            times = {"start_time": start, "end_time": end}
            found = client.get_evaluation("e/1", **times, interval_in_minutes=5)
            if found["status"] != "Running" or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert found["status"] == "Succeeded", found["description"]
        results = {each["name"]: each for each in found["content"]["value"]}
        assert set(results) == {"Online", "Baseline", "Random"}
        assert results["Baseline"]["summary"]["expectedReward"] > 0.7
        assert len(results["Online"]["timeseries"]["data"]) >= 4
        assert [each["id"] for each in client.list_evaluations()] == ["e/1"]
        with pytest.raises(HttpResponseError):
            client.get_evaluation("e/1", **times, interval_in_minutes=7)
        with pytest.raises(ResourceNotFoundError):
            client.get_evaluation("never", **times)
        client.apply_from_evaluation({"evaluationId": "e/1", "policyName": "Online"})
        # The older generations: a bare list, 201 and a location.
        headers = {"Ocp-Apim-Subscription-Key": drinks.keys["administer"]}
        with httpx.Client(
            timeout=PATIENCE, base_url=f"{drinks.url}/personalizer/v1.1-preview.3", headers=headers
        ) as v1:
            listed = v1.get("/evaluations").json()
            assert listed[0]["status"] == "completed"
            assert {each["policySource"] for each in listed[0]["policyResults"]} == set(results)
            made = v1.post("/evaluations", json={**span, "policies": []})
            assert made.status_code == 201
            assert v1.get(f"/evaluations/{made.json()['id']}").status_code == 200
            assert made.headers["location"].endswith(made.json()["id"])
            twice = [{"name": "a", "arguments": "TS"}] * 2
            wrong = v1.post("/evaluations", json={**span, "policies": twice})
            assert wrong.json()["error"]["code"] == "DuplicateCustomPolicyNames"
        client.delete_evaluation("e/1")
        assert "e/1" not in [each["id"] for each in client.list_evaluations()]
        client.create_feature_importance("f", span)
        scores = client.get_feature_importance("f")["featureScores"]
        assert "n" in [each["featureName"] for each in scores]
        assert len(list(client.list_feature_importances())) == 1
        client.delete_feature_importance("f")
        with pytest.raises(ResourceNotFoundError):
            client.get_feature_importance("f")


def test_a_repeat_with_the_same_request_id_counts_once(tmp_path, clock):
    """What the clients do when an answer got lost, or was 429, 500 or 503."""
    with served(tmp_path / "data", clock, **SETTINGS, aggregation="sum") as drinks:
        headers = {
            "Ocp-Apim-Subscription-Key": drinks.keys["decide"],
            "x-ms-client-request-id": "11111111-2222-3333-4444-555555555555",
        }
        base = f"{drinks.url}/personalizer/v1.0"
        with httpx.Client(timeout=PATIENCE, headers=headers) as http:
            ranks = [http.post(f"{base}/rank", json={"actions": ACTIONS}).json() for _ in range(3)]
            assert len({each["eventId"] for each in ranks}) == 1
            assert ranks[0] == ranks[1] == ranks[2]
            other = http.post(f"{base}/rank", json={"actions": ACTIONS[:2]}).json()
            assert other["eventId"] != ranks[0]["eventId"]  # the same id, but not a repeat
            id = ranks[0]["eventId"]
            for _ in range(3):
                http.post(f"{base}/events/{id}/reward", json={"value": 0.5})
            http.post(
                f"{base}/events/{id}/reward", json={"value": 0.5},
                headers={"x-ms-client-request-id": "another"},
            )  # fmt: skip
        clock.pass_by(601)
        new_client_like = httpx.post(
            f"{base}/rank", json={"actions": ACTIONS}, headers=headers, timeout=PATIENCE
        )
        assert new_client_like.status_code == 201
        assert total(drinks) == 1.0


def test_the_new_client_repeats_by_itself_and_counts_once(tmp_path, clock, monkeypatch):
    with served(tmp_path / "data", clock, **SETTINGS, aggregation="sum") as drinks:
        drinks.verify = True
        client = new_client(drinks)
        answer = client.rank({"actions": ACTIONS})
        original, statuses = drinks.application.answer, []

        async def losing(scope: Any, receive: Any) -> Any:
            found = await original(scope, receive)
            statuses.append(found.status)
            if len(statuses) < 3:
                return found._replace(status=503, body=b"{}", headers=[(b"retry-after", b"0")])
            return found

        monkeypatch.setattr(drinks.application, "answer", losing)
        client.reward(answer["eventId"], {"value": 1.0})
        assert statuses == [204, 204, 204]
        clock.pass_by(601)
        client.rank({"actions": ACTIONS})
        assert (pulls(drinks), total(drinks)) == (1, 1.0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"actions": []}, "1 to 50 actions"),
        ({"actions": [{"id": str(n)} for n in range(51)]}, "1 to 50 actions"),
        ({"actions": [{"id": "a"}, {"id": "a"}]}, "id of its own"),
        ({"actions": [{"id": ""}]}, "1 to 256"),
        ({"actions": [{"id": "x" * 257}]}, "1 to 256"),
        ({"actions": [{"features": []}]}, "missing required field `id`"),
        ({"excludedActions": ["tea", "milk", "juice", "water"]}, "no arm to choose"),
        ({"eventId": "x" * 257}, "1 to 256"),
        ({"contextFeatures": [{"a": ["x", 1]}]}, "may only hold numbers"),
        ({"contextFeatures": {"a": 1}}, "Expected `array"),
    ],
)
def test_limits_of_rank(one_http, change, sentence):
    _, http = one_http
    found = http.post("/rank", json={"actions": ACTIONS, **change})
    assert found.status_code == 400
    error = found.json()["error"]
    assert error["code"] == found.headers["x-ms-error-code"] == "InvalidRankRequest"
    assert sentence in error["message"]
    assert set(error) == {"code", "message", "target", "details", "innerError"}


@pytest.fixture(scope="module")
def one_http(tmp_path_factory):
    with served(tmp_path_factory.mktemp("one") / "data", Clock(), **SETTINGS) as drinks:
        headers = {"Ocp-Apim-Subscription-Key": drinks.keys["administer"]}
        base = f"{drinks.url}/personalizer/v1.0"
        with httpx.Client(timeout=PATIENCE, base_url=base, headers=headers) as http:
            yield drinks, http


def test_what_is_refused(one_http):
    drinks, http = one_http
    for value in (1.01, -2, None, "1"):
        found = http.post("/events/x/reward", json={"value": value})
        assert (found.status_code, found.headers["x-ms-error-code"]) == (
            400,
            "InvalidRewardRequest",
        )
    found = http.post("/logs/interactions", content=b"\x10\x00")
    assert (found.status_code, found.headers["x-ms-error-code"]) == (403, "OperationNotAllowed")
    assert "FlatBuffers" in found.json()["error"]["message"]
    assert http.post("/nothing").headers["x-ms-error-code"] == "ResourceNotFound"
    assert http.get("/rank").status_code == 405
    url = f"{drinks.url}/personalizer/rank?api-version=2031-01-01"
    assert httpx.post(url, headers=http.headers, json={}, timeout=PATIENCE).status_code == 404
    assert (
        httpx.post(f"{drinks.url}/personalizer/v1.0/rank", json={}, timeout=PATIENCE).status_code
        == 401
    )
    decide = {"Ocp-Apim-Subscription-Key": drinks.keys["decide"]}
    assert http.get("/configurations/service", headers=decide).status_code == 403
    server = {"Ocp-Apim-Subscription-Key": drinks.server_key}
    assert http.post("/rank", json={"actions": ACTIONS}, headers=server).status_code == 403
    answer = http.post("/events/a%2Fb/activate")
    assert answer.headers["x-ms-error-code"] == "InvalidEventIdToActivate"


def test_success_has_the_path_that_azure_rest_wants(one_http):
    drinks, http = one_http
    http.post("/rank", json={"actions": ACTIONS, "eventId": "a/b"})
    answer = http.post("/events/a%2Fb/reward", json={"value": 1})
    assert answer.status_code == 204
    assert answer.headers["x-ms-original-url"] == f"{drinks.url}/events/a%2Fb/reward"
    assert "content-type" not in answer.headers
