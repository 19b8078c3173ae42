//! What an operation declares beside its description: the permission that it requires, its command, audit action, event and error codes.
//!
//! The permission check and the OpenAPI document both use this declaration. The router accepts only operations that implement [`Declare`],
//! so an operation without a declaration does not compile.

use std::fmt::Display;

use gpuaas_model::{AuditAction, Code, EventKind, Permission};
use serde_json::Value;
use utoipa::openapi::extensions::Extensions;

/// An operation with its declaration.
pub(crate) trait Declare {
    const DECLARATION: Declaration;
}

/// What an operation declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declaration {
    /// Permission that a caller needs.
    pub(crate) access: Access,
    /// Command of the CLI.
    pub(crate) cli: Entry<&'static str>,
    /// Audit action.
    pub(crate) audit: Entry<AuditAction>,
    /// Event that tells subscribers.
    pub(crate) event: Entry<EventKind>,
    /// Error codes of its own, without those of all operations of its kind.
    pub(crate) errors: &'static [Code],
}

/// A declared value, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<T> {
    Is(T),
    None(&'static str),
}

impl<T: Copy> Entry<T> {
    pub(crate) fn value(&self) -> Option<T> {
        match self {
            Self::Is(value) => Some(*value),
            Self::None(_) => None,
        }
    }
}

impl<T: Display> Entry<T> {
    fn text(&self) -> String {
        match self {
            Self::Is(value) => value.to_string(),
            Self::None(reason) => none_because(reason),
        }
    }
}

fn none_because(reason: &str) -> String {
    format!("none: {reason}")
}

/// Access to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A token whose role has this permission.
    Permission(Permission),
    /// No token, for this reason.
    Public(&'static str),
}

impl Access {
    pub(crate) const fn permission(self) -> Option<Permission> {
        match self {
            Self::Permission(permission) => Some(permission),
            Self::Public(_) => None,
        }
    }
}

/// Reason for which an operation that only reads has no audit action and no event.
const READ: &str = "read";

impl Declaration {
    /// Declares an operation that only reads.
    pub(crate) const fn reads(permission: Permission, cli: &'static str) -> Self {
        Self {
            access: Access::Permission(permission),
            cli: Entry::Is(cli),
            audit: Entry::None(READ),
            event: Entry::None(READ),
            errors: &[],
        }
    }

    /// Declares an operation that changes something.
    pub(crate) const fn changes(
        permission: Permission,
        cli: &'static str,
        audit: AuditAction,
        event: EventKind,
    ) -> Self {
        let access = Access::Permission(permission);
        Self { access, cli: Entry::Is(cli), audit: Entry::Is(audit), event: Entry::Is(event), errors: &[] }
    }

    /// Declares an operation without a token or command that only reads. `why` is the reason for the missing token.
    pub(crate) const fn public(why: &'static str, no_cli: &'static str) -> Self {
        Self {
            access: Access::Public(why),
            cli: Entry::None(no_cli),
            audit: Entry::None(READ),
            event: Entry::None(READ),
            errors: &[],
        }
    }

    /// Declares an operation that changes something and checks a credential of its own instead of a token.
    pub(crate) const fn exchanges(
        credential: &'static str,
        cli: Entry<&'static str>,
        audit: AuditAction,
        event: EventKind,
    ) -> Self {
        let access = Access::Public(credential);
        Self { access, cli, audit: Entry::Is(audit), event: Entry::Is(event), errors: &[] }
    }

    /// Returns the same declaration with an audit action.
    pub(crate) const fn audited(self, action: AuditAction) -> Self {
        Self { audit: Entry::Is(action), ..self }
    }

    /// Returns the same declaration with error codes of its own.
    pub(crate) const fn with_errors(self, errors: &'static [Code]) -> Self {
        Self { errors, ..self }
    }

    /// Returns the declaration as extensions of the OpenAPI document. `errors` are all codes of the operation.
    pub(crate) fn extensions(&self, errors: &[Code]) -> Extensions {
        let access = match self.access {
            Access::Permission(permission) => permission.to_string(),
            Access::Public(why) => none_because(why),
        };
        Extensions::builder()
            .add("x-permission", access)
            .add("x-cli", self.cli.text())
            .add("x-audit", self.audit.text())
            .add("x-event", self.event.text())
            .add("x-errors", errors.iter().map(|code| Value::from(code.as_str())).collect::<Value>())
            .build()
    }
}

/// Declares an operation, named by its handler, and lists its own error codes.
///
/// `reads(PERMISSION, "COMMAND")` and `changes(PERMISSION, "COMMAND", ACTION, EVENT)` take the variants of [`Permission`], [`AuditAction`]
/// and [`EventKind`]; other operations use the constructors of [`Declaration`].
macro_rules! declare {
    ($operation:ident: reads($permission:ident, $cli:literal), $errors:tt) => {
        $crate::declaration::declare! {
            $operation: $crate::declaration::Declaration::reads(gpuaas_model::Permission::$permission, $cli), $errors
        }
    };
    ($operation:ident: changes($permission:ident, $cli:literal, $audit:ident, $event:ident), $errors:tt) => {
        $crate::declaration::declare! {
            $operation: $crate::declaration::Declaration::changes(
                gpuaas_model::Permission::$permission,
                $cli,
                gpuaas_model::AuditAction::$audit,
                gpuaas_model::EventKind::$event,
            ),
            $errors
        }
    };
    ($operation:ident: $declaration:expr, [$($error:ident),*]) => {
        utoipa_axum::paste! {
            impl $crate::declaration::Declare for [<__path_ $operation>] {
                const DECLARATION: $crate::declaration::Declaration =
                    $declaration.with_errors(&[$(gpuaas_model::Code::$error),*]);
            }
        }
    };
}
pub(crate) use declare;
