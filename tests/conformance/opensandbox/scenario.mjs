// OpenSandbox's JavaScript SDK, unchanged, against a live server. Run by test_javascript.py with the address, key and
// image in the environment; a failed assertion ends it with a non-zero status.
import assert from "node:assert/strict";
import { ConnectionConfig, Sandbox, SandboxManager } from "@alibaba-group/opensandbox";

const image = process.env.IMAGE;
const connectionConfig = new ConnectionConfig({
  domain: process.env.DOMAIN,
  apiKey: process.env.API_KEY,
  useServerProxy: process.env.THROUGH_SERVER === "true",
});
const lines = (execution) => execution.logs.stdout.map((message) => message.text);

const sandbox = await Sandbox.create({
  connectionConfig,
  image,
  timeoutSeconds: 300,
  resource: { cpu: "1", memory: "256Mi" },
  metadata: { from: "javascript" },
  env: { GREETING: "hi" },
  networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.example" }] },
});
try {
  const info = await sandbox.getInfo();
  assert.equal(info.status.state, "Running");
  assert.equal(info.metadata.from, "javascript");
  assert.ok(await sandbox.isHealthy());

  assert.deepEqual(lines(await sandbox.commands.run("echo $GREETING")), ["hi"]);
  const failed = await sandbox.commands.run("echo no >&2; exit 4");
  assert.equal(failed.error.value, "4");
  assert.deepEqual(failed.logs.stderr.map((message) => message.text), ["no"]);

  await sandbox.files.createDirectories([{ path: "/tmp/d", mode: 755 }]);
  await sandbox.files.writeFiles([{ path: "/tmp/d/a.txt", data: "hello", mode: 644 }]);
  assert.equal(await sandbox.files.readFile("/tmp/d/a.txt"), "hello");
  const found = await sandbox.files.search({ path: "/tmp/d", pattern: "*.txt" });
  assert.deepEqual(found.map((entry) => entry.path), ["/tmp/d/a.txt"]);
  await sandbox.files.deleteDirectories(["/tmp/d"]);

  const policy = await sandbox.getEgressPolicy();
  assert.equal(policy.defaultAction, "deny");
  await sandbox.patchEgressRules([{ action: "deny", target: "bad.example" }]);

  assert.ok((await sandbox.getMetrics()).memoryUsedMiB > 0);
  assert.ok((await sandbox.getEndpoint(8000)).endpoint);
  const renewed = await sandbox.renew(1200);
  assert.ok(renewed.expiresAt);

  const manager = SandboxManager.create({ connectionConfig });
  const listed = await manager.listSandboxInfos({ states: ["Running"], metadata: { from: "javascript" } });
  assert.ok(listed.items.some((item) => item.id === sandbox.id));

  await sandbox.pause();
  const resumed = await sandbox.resume();
  assert.deepEqual(lines(await resumed.commands.run("echo back")), ["back"]);
} finally {
  await sandbox.kill();
  await sandbox.close?.();
}
console.log("ok");
