package fence

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestTokenTravelsAsText(t *testing.T) {
	for _, tok := range []Token{0, 1, 7, 1<<53 + 1, math.MaxUint64} {
		if got, err := ParseToken(tok.String()); got != tok || err != nil {
			t.Errorf("ParseToken(%s) = %d, %v", tok, got, err)
		}
		text, _ := tok.MarshalText()
		var back Token
		if err := back.UnmarshalText(text); back != tok || err != nil {
			t.Errorf("text %s came back as %d, %v", text, back, err)
		}
		type message struct {
			T  Token
			In map[Token]Token
		}
		b, err := json.Marshal(message{tok, map[Token]Token{tok: tok}})
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"T":"` + tok.String() + `","In":{"` + tok.String() + `":"` + tok.String() + `"}}`; string(b) != want {
			t.Errorf("JSON is %s, want %s", b, want)
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil || m.T != tok || m.In[tok] != tok {
			t.Errorf("JSON %s came back as %v, %v", b, m, err)
		}
	}
}

func TestParseTokenTakesOneSpellingOnly(t *testing.T) {
	for _, s := range []string{"", "-1", "+1", " 1", "1 ", "007", "00", "0x7", "1_000", "1e3", "1.0", "seven",
		"18446744073709551616", strings.Repeat("9", 1<<16)} {
		got, err := ParseToken(s)
		if err == nil {
			t.Errorf("ParseToken(%.40q) = %d, want an error", s, got)
		} else if !strings.HasPrefix(err.Error(), "fence: ") || len(err.Error()) > 120 {
			t.Errorf("ParseToken(%.40q): %.200v: want a short error that names the package", s, err)
		}
	}
}

func TestJSONNumberIsNoToken(t *testing.T) {
	for _, s := range []string{`7`, `7.0`, `true`, `["7"]`, `""`, `"07"`, `"-7"`} {
		tok := Token(5)
		if err := json.Unmarshal([]byte(s), &tok); err == nil || tok != 5 {
			t.Errorf("JSON %s gave %d, %v, want an error and the token left as it was", s, tok, err)
		}
	}
	for _, s := range []string{``, `"`, `7"`} {
		tok := Token(5)
		if err := tok.UnmarshalJSON([]byte(s)); err == nil || tok != 5 {
			t.Errorf("UnmarshalJSON(%s) gave %d, %v", s, tok, err)
		}
	}
	tok := Token(5)
	if err := json.Unmarshal([]byte(`null`), &tok); err != nil || tok != 5 {
		t.Errorf("JSON null gave %d, %v, want nothing changed", tok, err)
	}
}

func TestContextCarriesTheInnermostToken(t *testing.T) {
	bg := context.Background()
	seven := NewContext(bg, 7)
	for _, c := range []struct {
		ctx  context.Context
		want Token
	}{
		{bg, 0},
		{seven, 7},
		{NewContext(seven, 9), 9},
		{NewContext(seven, 0), 0}, // zero hides the outer token
		{context.WithoutCancel(seven), 7},
	} {
		if got, ok := FromContext(c.ctx); got != c.want || ok != (c.want != 0) {
			t.Errorf("FromContext = %d, %v, want %d", got, ok, c.want)
		}
	}
}

func TestContextFuncIsCalledAtEachRead(t *testing.T) {
	bg := context.Background()
	now := Token(7)
	ctx := NewContextFunc(NewContext(bg, 3), func() Token { return now })
	for _, want := range []Token{7, 9, 0} { // zero hides the outer token
		now = want
		if got, ok := FromContext(ctx); got != want || ok != (want != 0) {
			t.Errorf("FromContext = %d, %v, want %d", got, ok, want)
		}
	}
	now = 9
	if got, _ := FromContext(NewContext(ctx, 11)); got != 11 {
		t.Errorf("the inner context carries %d, want 11", got)
	}
}

func FuzzParseToken(f *testing.F) {
	for _, s := range []string{"", "0", "7", "007", "18446744073709551615", "18446744073709551616", "-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := ParseToken(s)
		if err == nil && tok.String() != s {
			t.Errorf("%q was read as %d: two spellings of one token", s, tok)
		}
		if err != nil && tok != 0 {
			t.Errorf("%q gave the error %v and also the token %d", s, err, tok)
		}
	})
}
