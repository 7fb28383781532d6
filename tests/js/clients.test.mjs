// The JavaScript clients against a running framehost, whose address is in FRAMEHOST_URL: an answer of each kind, and
// faults as each client knows them.

import assert from "node:assert/strict";
import test from "node:test";

import { createOpenAI } from "@ai-sdk/openai";
import { createTypeSafeAi } from "@ai-sdk/typesafe-ai";
import { TypeSafeClient } from "@typesafe-ai/sdk";
import { experimental_decide as decide } from "ai";

const url = process.env.FRAMEHOST_URL;
const STATE = "I was charged twice for my order and want my money back";
const TEAM = { billing: "a charge, an invoice or a refund", bug: "something is broken" };
const LEVELS = ["small", "large"];

test("@typesafe-ai/sdk", async () => {
  const client = new TypeSafeClient({ apiKey: "any", baseURL: url });
  const questions = {
    team: { type: "choice", instructions: "Which team answers?", criteria: TEAM },
    refund: { type: "noul", instructions: "Is a refund wanted?" },
    harm: { type: "score", instructions: "How large is it?", criteria: LEVELS },
  };
  const answered = await client.systemOne({ state: STATE, questions });
  assert.equal(answered.model, "sparrow");
  assert.equal(answered.answers.team.choice, "billing");
  assert.ok(answered.answers.refund.noul >= 0 && answered.answers.refund.noul <= 1);
  assert.deepEqual(answered.answers.harm.legend, { 0: "small", 1: "large" });
  assert.deepEqual((await client.models.list()).map((model) => model.name), ["sparrow"]);
  // JavaScript strings may have half of a surrogate pair, and this client sends it.
  await assert.rejects(client.systemOne({ state: "\ud83d", questions }), { status: 422 });
  await assert.rejects(client.systemOne({ model: "gpt", state: STATE, questions }), { status: 400 });
});

for (const [name, model] of [
  ["ai with @ai-sdk/typesafe-ai", (id) => createTypeSafeAi({ apiKey: "any", baseURL: `${url}/v1` }).evaluationModel(id)],
  ["ai with @ai-sdk/openai", (id) => createOpenAI({ apiKey: "any", baseURL: `${url}/v1` }).decisionModel(id)],
]) {
  test(name, async () => {
    const questions = {
      team: { type: "choice", instructions: "Which team answers?", criteria: TEAM },
      refund: { type: "boolean", instructions: "Is a refund wanted?", criteria: { true: "money back", false: "no" } },
      harm: { type: "score", instructions: "How large is it?", criteria: LEVELS },
    };
    const answered = await decide({ model: model("jev-latest"), state: STATE, questions });
    assert.equal(answered.response.modelId, "sparrow");
    assert.deepEqual(Object.keys(answered.answers), ["team", "refund", "harm"]);
    assert.deepEqual(Object.keys(answered.answers.team.probabilities), ["billing", "bug"]);
    assert.ok(answered.answers.harm.score >= 0 && answered.answers.harm.score <= 1);
    assert.ok(answered.usage.inputTokens > 0);
    const unknown = decide({ model: model("gpt"), state: STATE, questions, maxRetries: 0 });
    await assert.rejects(unknown, (error) => [400, 404].includes(error.statusCode) && /Unknown model/.test(error.message));
  });
}
