// Browsers refuse workers to pages that are opened from disk. Run the worker of the search in a
// hidden frame there, so that the search works without a server and without a network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.document.open();
      inner.document.write("<!doctype html><body></body>");
      inner.document.close();
      inner.postMessage = data => this.hear(data);
      inner.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
      this.ready = this.load(url);
    }
    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        this.frame.contentDocument.body.append(script);
      });
    }
    hear(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
    postMessage(data) {
      const inner = this.frame.contentWindow;
      this.ready.then(() => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
