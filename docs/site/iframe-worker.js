// SPDX-License-Identifier: Apache-2.0
// Browsers start no worker for a page that is opened as a file. There, the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      frame.contentDocument.open();
      frame.contentDocument.close();
      this.inside = frame.contentWindow;
      this.waiting = [];
      // What the search says with postMessage goes to the page.
      this.inside.postMessage = (data) => {
        const event = new MessageEvent("message", {data});
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location.href);
      script.onload = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      };
      frame.contentDocument.body.append(script);
    }
    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
      } else {
        setTimeout(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", {data})));
      }
    }
    terminate() {}
  };
}
