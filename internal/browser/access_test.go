package browser

import (
	"encoding/json"
	"fmt"
)

// accessible fails the test unless the page can be used with a screen reader, by eyes that
// need contrast, and in both colour schemes.
func accessible(p *tab) {
	p.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored bool
			Role    struct{ Value string }
			Name    struct{ Value string }
		}
	}
	p.call("Accessibility.getFullAXTree", nil)(&tree)
	roles := make(map[string]int)
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		roles[n.Role.Value]++
		switch n.Role.Value {
		case "button", "link", "textbox", "checkbox", "region", "dialog", "table", "navigation", "search", "image", "img":
			if n.Name.Value == "" && n.Role.Value != "table" {
				p.t.Errorf("a %s has no name for a screen reader", n.Role.Value)
			}
		}
	}
	for _, role := range []string{"banner", "main", "navigation", "contentinfo", "status", "log", "heading"} {
		// A dialog hides the page behind it.
		if roles[role] == 0 && roles["dialog"] == 0 {
			p.t.Errorf("the page has no %s: %v", role, roles)
		}
	}
	for _, dark := range []bool{false, true} {
		p.scheme(dark)
		var poor []string
		if err := p.eval(contrast, &poor); err != nil {
			p.t.Fatal(err)
		}
		for _, s := range poor {
			p.t.Errorf("dark %v: poor contrast: %s", dark, s)
		}
	}
	p.scheme(false)
}

// contrast lists the visible texts with less contrast than WCAG's AA asks for.
const contrast = `(() => {
	const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length === 3 ? [...m, 1] : m; };
	const light = c => { const v = c.slice(0, 3).map(x => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; }); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
	const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return matchMedia('(prefers-color-scheme: dark)').matches ? [0, 0, 0, 1] : [255, 255, 255, 1]; };
	const poor = [];
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = walk.nextNode();) {
		const e = n.parentElement;
		if (!n.textContent.trim() || !e.checkVisibility({visibilityProperty: true}) || e.closest('script, style, svg, noscript, :disabled, .skip')) continue;
		const a = light(parse(getComputedStyle(e).color)), b = light(back(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) poor.push(ratio.toFixed(2) + ' ' + n.textContent.trim().slice(0, 40) + ' in ' + e.tagName + '.' + e.className);
	}
	return poor;
})()`

// quote returns s as an expression of JavaScript.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprint("a text has an encoding: ", err))
	}
	return string(b)
}
