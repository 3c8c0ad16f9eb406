// Contrast (WCAG 2.2) of what a figure draws: of each text to what lies below it, of each mark to the page or to
// what lies below it, whichever it stands out from more. Returns what is drawn in the same way once.
box => {
  const svg = box.querySelector(".companion-live svg");
  const parse = colour => {
    const [r, g, b, a = 1] = (colour.match(/[\d.]+/g) || []).map(Number);
    return b === undefined ? null : { rgb: [r, g, b], a };
  };
  const over = ({ rgb, a }, below) => rgb.map((value, i) => a * value + (1 - a) * below[i]);
  const linear = value => value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };

  let page = [255, 255, 255];
  for (let element = box; element; element = element.parentElement) {
    const ground = parse(getComputedStyle(element).backgroundColor);
    if (ground && ground.a === 1) {
      page = ground.rgb;
      break;
    }
  }

  function paint(element, kind) {
    const style = getComputedStyle(element);
    const colour = parse(style[kind]);
    if (!colour || style.visibility === "hidden") return null;
    let a = colour.a * Number(style[`${kind}Opacity`]);
    for (let each = element; each !== svg.parentElement; each = each.parentElement) a *= Number(getComputedStyle(each).opacity);
    return a > 0 ? { rgb: colour.rgb, a } : null;
  }

  const shapes = [...svg.querySelectorAll("path, rect, line")].map((element, rank) => ({
    element, fill: element.tagName === "line" ? null : paint(element, "fill"), stroke: paint(element, "stroke"),
    place: element.getScreenCTM(), isMark: Boolean(element.closest(".role-mark")), rank,
  }));
  const isBefore = (one, other) => Boolean(one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING);
  const texts = [...svg.querySelectorAll("text")].filter(text => text.textContent.trim());

  /* The colour at the middle of an element, before it is drawn. */
  function below(element) {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    const middle = new DOMPoint((left + right) / 2, (top + bottom) / 2);
    let ground = page;
    for (const shape of shapes)
      if (shape.fill && shape.place && shape.element !== element && isBefore(shape.element, element) &&
          shape.element.isPointInFill(middle.matrixTransform(shape.place.inverse())))
        ground = over(shape.fill, ground);
    for (const other of texts) { // the same words with a broad edge: a ground for those drawn on top
      const edge = paint(other, "stroke");
      const { left: x, top: y } = other.getBoundingClientRect();
      if (edge && other !== element && other.textContent === element.textContent && isBefore(other, element) &&
          Math.abs((x + other.getBoundingClientRect().right) / 2 - middle.x) < 1 && y <= middle.y)
        ground = over(edge, ground);
    }
    return ground;
  }

  const once = rows => [...new Map(rows.map(row => [JSON.stringify(row), row])).values()];
  const whole = colour => colour.map(Math.round).join(" ");
  const ink = texts.filter(text => !paint(text, "stroke")).flatMap(text => {
    const fill = paint(text, "fill");
    const ground = below(text);
    return fill ? [{ text: text.textContent, on: whole(ground), contrast: contrast(over(fill, ground), ground) }] : [];
  });
  const marks = shapes.filter(({ isMark, fill, stroke }) => isMark && (fill || stroke)).map(({ element, fill, stroke }) => {
    const found = Math.max(...[fill, stroke].filter(Boolean).map(each => contrast(over(each, page), page)));
    const ground = found < 3 ? below(element) : page;
    const best = Math.max(...[fill, stroke].filter(Boolean).map(each => contrast(over(each, ground), ground)));
    return { mark: element.closest("g").getAttribute("class"), contrast: Math.max(found, best) };
  });
  return { texts: once(ink), marks: once(marks) };
}
