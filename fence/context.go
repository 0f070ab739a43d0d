package fence

import "context"

type contextKey struct{}

// NewContext returns a context that carries t. With t zero the new context
// carries no token, even if ctx carries a token.
func NewContext(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// NewContextFunc returns a context that carries a changing token: each call of
// FromContext calls token and returns its result. The token of a grant may rise
// during the grant. While token returns zero, the context carries no token, even
// if ctx carries a token. The function token must not block, and many goroutines
// may call it at once.
func NewContextFunc(ctx context.Context, token func() Token) context.Context {
	return context.WithValue(ctx, contextKey{}, token)
}

// FromContext returns the token that ctx carries; ok is false if ctx carries no
// token. The grant of the token may be over already.
func FromContext(ctx context.Context) (t Token, ok bool) {
	switch v := ctx.Value(contextKey{}).(type) {
	case Token:
		t = v
	case func() Token:
		t = v()
	}
	return t, t != 0
}
