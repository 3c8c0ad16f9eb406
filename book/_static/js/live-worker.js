/* Python beside the page: started once, asked for one figure after the other. */
"use strict";

let python;

async function checked(address, integrity) {
  // Fetched with its checksum first; what is imported afterwards comes from the browser's cache.
  const answer = await fetch(address, { integrity });
  if (!answer.ok) throw new Error(`${address}: ${answer.status} ${answer.statusText}`);
  return answer;
}

async function start({ home, files, wheel, outside }) {
  if (outside) await Promise.all(Object.entries(files).map(([name, integrity]) => checked(home + name, integrity)));
  const { loadPyodide } = await import(`${home}pyodide.mjs`);
  const ready = await loadPyodide({ indexURL: home });
  ready.unpackArchive(await (await checked(wheel)).arrayBuffer(), "wheel", { extractDir: "/companion" });
  ready.runPython("import sys; sys.path.insert(0, '/companion')");
  return ready.pyimport("mooncake_companion.live.answers");
}

onmessage = async ({ data }) => {
  try {
    if (!python) {
      postMessage({ kind: "status", text: "Starting Python…" });
      python = await start(data);
    }
    const sliced = data.slice ? await (await checked(data.slice)).text() : "";
    const progress = (done, all) => postMessage({ kind: "status", text: `Running… ${done} of ${all} done` });
    progress(0, 1);
    const answer = python.answer(data.figure, JSON.stringify(data.given), sliced, progress);
    postMessage({ kind: "answer", ...JSON.parse(answer) });
  } catch (error) {
    postMessage({ kind: "failed", text: String(error.message || error).trim().split("\n").pop() });
  }
};
