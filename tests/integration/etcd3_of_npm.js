// npm's etcd3, unchanged, does its work on tenure-core. usage: node etcd3_of_npm.js PORT
const { Etcd3 } = require("etcd3");
const assert = require("assert");

async function main() {
  const c = new Etcd3({ hosts: `http://127.0.0.1:${process.argv[2]}` });
  await c.put("js/a").value("1");
  assert.strictEqual(await c.get("js/a").string(), "1");
  assert.strictEqual(await c.get("js/none").string(), null);
  assert.deepStrictEqual(await c.getAll().prefix("js/").strings(), { "js/a": "1" });
  const r = await c.if("js/a", "Value", "==", "1").then(c.put("js/b").value("2"), c.get("js/a")).else(c.delete().key("js/a")).commit();
  assert(r.succeeded);

  const watcher = await c.watch().prefix("js/w").create();
  const seen = new Promise((ok) => watcher.on("put", (kv) => ok(kv.value.toString())));
  await c.put("js/w1").value("seen");
  assert.strictEqual(await seen, "seen");
  const gone = new Promise((ok) => watcher.on("delete", (kv) => ok(kv.key.toString())));
  const lease = c.lease(20);
  await lease.put("js/w2").value("leased");
  await lease.keepaliveOnce();
  await lease.revoke();
  assert.strictEqual(await gone, "js/w2");
  await watcher.cancel();

  await c.lock("js-lock").do(async () => {
    await assert.rejects(c.lock("js-lock").acquire());
  });
  await c.stm().transact((tx) => tx.get("js/a").string().then((v) => tx.put("js/a").value(v + "0")));
  assert.strictEqual(await c.get("js/a").string(), "10");

  const election = c.election("js-election", 5);
  const campaign = election.campaign("me");
  await new Promise((ok, no) => { campaign.on("elected", ok); campaign.on("error", no); });
  assert.strictEqual(await election.leader(), "me");
  await campaign.resign();

  assert((await c.cluster.memberList({})).members.length >= 1);
  assert((await c.maintenance.status()).version);
  await c.delete().prefix("js/");
  assert.deepStrictEqual(await c.getAll().prefix("js/").strings(), {});
  c.close();
  console.log("done");
}

main().catch((e) => { console.log("not as it should be:", e); process.exit(1); });
