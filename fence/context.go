package fence

import "context"

type contextKey struct{}

// NewContext returns a context that carries t. With t zero the new context
// carries no token, even if ctx does.
func NewContext(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// NewContextFunc returns a context that carries whatever token returns when
// FromContext asks: a grant's token may rise while it is held. At a moment at
// which token returns zero the context carries no token, even if ctx does. token
// must not block, and may be called by many goroutines at once.
func NewContextFunc(ctx context.Context, token func() Token) context.Context {
	return context.WithValue(ctx, contextKey{}, token)
}

// FromContext returns the token that ctx carries, and whether it carries one.
// It does not say that the token's grant still stands.
func FromContext(ctx context.Context) (Token, bool) {
	var t Token
	switch v := ctx.Value(contextKey{}).(type) {
	case Token:
		t = v
	case func() Token:
		t = v()
	}
	return t, t != 0
}
