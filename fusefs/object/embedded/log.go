package embedded

import (
	"log/slog"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3log"
)

// errorLog logs the requests that an operator should hear of: those the server
// could not carry out, and those it refused for their credentials. A key that
// does not exist and a condition that does not hold are everyday answers.
type errorLog struct{ log *slog.Logger }

var _ s3log.AuditLogger = (*errorLog)(nil)

// Log implements s3log.AuditLogger.
func (l *errorLog) Log(ctx fiber.Ctx, err error, _ []byte, m s3log.LogMeta) {
	if err == nil {
		return
	}
	status := http.StatusInternalServerError
	if known, ok := err.(s3err.S3Error); ok {
		status = known.StatusCode()
	}
	switch {
	case status >= 500:
		l.log.Error("Cannot answer store request", "method", ctx.Method(), "path", ctx.Path(), "action", m.Action, "status", status, "err", err)
	case status == http.StatusForbidden:
		l.log.Warn("Refused store request", "method", ctx.Method(), "path", ctx.Path(), "action", m.Action, "status", status, "err", err)
	}
}

// HangUp implements s3log.AuditLogger.
func (*errorLog) HangUp() error { return nil }

// Shutdown implements s3log.AuditLogger.
func (*errorLog) Shutdown() error { return nil }
