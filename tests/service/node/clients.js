// Speaks to a service with Personalizer's two Node clients, and prints what came of it as JSON.
//   node clients.js URL KEY
const [url, key] = process.argv.slice(2);
const { ApiKeyCredentials } = require("@azure/ms-rest-js");
const { PersonalizerClient } = require("@azure/cognitiveservices-personalizer");
const rest = require("@azure-rest/ai-personalizer");
const { AzureKeyCredential } = require("@azure/core-auth");

const actions = [
  { id: "tea", features: [{ hot: true, sugar: 0.1 }] },
  { id: "milk", features: [{ hot: false }] },
  { id: "juice", features: [{ tags: [1, 2] }] },
];
const contextFeatures = [{ hour: 9 }, { city: "Zürich" }];
const ids = ["plain", "a/b c", "münchen/straße ñ", "50%+1?x=1#y", "日本"];

async function former() {
  const credentials = new ApiKeyCredentials({ inHeader: { "Ocp-Apim-Subscription-Key": key } });
  const client = new PersonalizerClient(credentials, url, { noRetryPolicy: true });
  const found = [];
  for (const eventId of ids) {
    const ranked = await client.rank({
      actions, contextFeatures, excludedActions: ["juice"], eventId: "old " + eventId, deferActivation: true,
    });
    await client.events.activate(ranked.eventId);
    await client.events.reward(ranked.eventId, { value: 0.5 });
    found.push({ id: ranked.eventId, action: ranked.rewardActionId, ranking: ranked.ranking });
  }
  let refused = null;
  try {
    await client.events.reward("never", { value: 1 });
  } catch (error) {
    refused = error.statusCode;
  }
  return { found, refused };
}

async function current() {
  const client = rest.default(url, new AzureKeyCredential(key), { allowInsecureConnection: true });
  const found = [], unexpected = [];
  const take = (name, answer) => {
    if (rest.isUnexpected(answer)) unexpected.push([name, answer.status, answer.body]);
    return answer.body;
  };
  for (const id of ids) {
    const eventId = "new " + id;
    const body = { actions, contextFeatures, eventId, deferActivation: true };
    const ranked = take("rank", await client.path("/rank").post({ body }));
    take("activate", await client.path("/events/{eventId}/activate", eventId).post());
    take("reward", await client.path("/events/{eventId}/reward", eventId).post({ body: { value: 0.5 } }));
    found.push({ id: ranked.eventId, action: ranked.rewardActionId });
  }
  const slots = [{ id: "top", baselineAction: "tea" }, { id: "side", baselineAction: "milk" }];
  const many = take("slots", await client.path("/multislot/rank").post({ body: { actions, slots, eventId: "m/1" } }));
  take("slot rewards", await client.path("/multislot/events/{eventId}/reward", "m/1")
    .post({ body: { reward: [{ slotId: "top", value: 1 }, { slotId: "side", value: 0 }] } }));
  take("slot activation", await client.path("/multislot/events/{eventId}/activate", "m/1").post());
  const configuration = take("configuration", await client.path("/configurations/service").get());
  const changed = take("configure", await client.path("/configurations/service")
    .put({ body: { ...configuration, explorationPercentage: 0.3 } }));
  const policy = take("policy", await client.path("/configurations/policy").get());
  take("reset policy", await client.path("/configurations/policy").delete());
  const model = take("model", await client.path("/model").get());
  take("model properties", await client.path("/model/properties").get());
  take("log properties", await client.path("/logs/properties").get());
  take("evaluations", await client.path("/evaluations").get());
  const flat = await client.path("/logs/interactions").post({ body: "x", contentType: "application/octet-stream" });
  const late = await client.path("/events/{eventId}/reward", "never").post({ body: { value: 1 } });
  take("reset model", await client.path("/model").delete());
  return {
    found, unexpected, slots: many.slots, exploration: changed.explorationPercentage, policy: policy.name,
    model: typeof model, flat: [flat.status, flat.body.error.code], late: [late.status, late.body.error.code],
  };
}

(async () => {
  console.log(JSON.stringify({ former: await former(), current: await current() }));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
