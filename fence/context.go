package fence

import "context"

type contextKey struct{}

// NewContext returns a context that carries t. With t zero the new context
// carries no token, even if ctx does.
func NewContext(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// FromContext returns the token that ctx carries, and whether it carries one.
// It does not say that the token's grant still stands.
func FromContext(ctx context.Context) (Token, bool) {
	t, _ := ctx.Value(contextKey{}).(Token)
	return t, t != 0
}
