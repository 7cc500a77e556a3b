// Every few seconds, the part of the page marked data-live is replaced by what the server has now.
(() => {
  const live = () => document.querySelector("[data-live]");
  if (!live()) return;
  const refresh = async () => {
    if (document.hidden || document.querySelector("details[open]")) return;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!answer.ok) return;
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-live]");
      if (next) live().replaceWith(next);
    } catch { /* the next try may work */ }
  };
  setInterval(refresh, 4000);
})();
