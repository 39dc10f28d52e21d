import { render } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { CopyButton } from "../../ui/copy";
import { type Block, blocks } from "../markdown";
import { sanitize } from "./sanitize";

/** Prose shows a Markdown text, which may still grow. */
export function Prose({ text }: { text: string }) {
  const before = useRef<readonly Block[]>([]);
  const parts = useMemo(() => {
    before.current = blocks(text, before.current);
    return before.current;
  }, [text]);
  return (
    <div class="prose" dir="auto">
      {parts.map(({ html }, i) => (
        <Part key={i} html={html} />
      ))}
    </div>
  );
}

function Part({ html }: { html: string }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const nodes = sanitize(html);
    const heads = [...nodes.querySelectorAll("pre")].map(addHead);
    box.current?.replaceChildren(nodes);
    return () => {
      for (const head of heads) render(null, head);
    };
  }, [html]);
  return <div class="part" ref={box} />;
}

// Adds a line with the language and a button that copies to a block of code.
function addHead(pre: HTMLPreElement): HTMLElement {
  const frame = document.createElement("div");
  frame.className = "code";
  const head = document.createElement("div");
  head.className = "code-head";
  pre.replaceWith(frame);
  frame.append(head, pre);
  pre.tabIndex = 0; // keyboard users scroll it
  render(
    <>
      <span>{pre.dataset.language || "text"}</span>
      <CopyButton label="Copy the code" testid="copy-code" text={() => pre.textContent ?? ""} />
    </>,
    head,
  );
  return head;
}
