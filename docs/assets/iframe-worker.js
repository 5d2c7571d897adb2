// The theme searches in a worker, and browsers start none for a page that is opened as a file. There the worker's program
// runs in a hidden frame of the page instead; the plugin `offline` writes the index as a script, which a file may load.
if (location.protocol === "file:") {
  const load = (page, address) =>
    new Promise((loaded, failed) => {
      const script = page.createElement("script");
      script.src = address;
      script.onload = loaded;
      script.onerror = () => failed(new Error(`${address} cannot be loaded`));
      (page.body || page.documentElement || page).append(script);
    });

  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open(); // first: what the window holds is kept from here on
      inside.document.write("<!doctype html><body>");
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...addresses) => {
        for (const one of addresses) await load(inside.document, new URL(one, address));
      };
      this.ready = load(inside.document, address);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
