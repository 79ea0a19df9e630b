//! The string literals of a source file that name fields.

use std::collections::{HashMap, HashSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprCall, ExprMethodCall, FnArg, ImplItemFn, ItemFn, ItemMod, Lit, LitStr, Pat,
    Signature, Type,
};

use super::sources::is_test;

/// Names that lead from a value to a value inside it: `spec.get("template")["spec"]` has two.
pub struct Literal {
    /// The line.
    pub line: usize,
    /// The names.
    pub path: Vec<String>,
}

/// Functions with the places of their arguments that are names of members, by their own names.
#[derive(Clone, Default)]
pub struct Accessors(HashMap<String, HashSet<usize>>);

impl Accessors {
    /// Returns the places that all files that define a function have in common.
    pub fn agreed<'a>(files: impl Iterator<Item = &'a Accessors>) -> Accessors {
        let mut agreed: HashMap<String, HashSet<usize>> = HashMap::new();
        for (name, places) in files.flat_map(|file| &file.0) {
            let known = agreed.entry(name.clone()).or_insert_with(|| places.clone());
            known.retain(|place| places.contains(place));
        }
        Accessors(agreed)
    }

    /// Adds the accessors of other files that are not defined here.
    pub fn with_others(&self, others: &Accessors) -> Accessors {
        let mut all = others.clone();
        all.0.extend(self.0.clone());
        all
    }

    /// Counts the places.
    pub fn len(&self) -> usize {
        self.0.values().map(HashSet::len).sum()
    }
}

/// Methods whose first argument is the name of a member, a dotted path or a JSON pointer.
const METHODS: [&str; 10] = [
    "get",
    "get_mut",
    "get_if_declared",
    "walk",
    "pointer",
    "pointer_mut",
    "child",
    "contains_key",
    "remove",
    "insert",
];

/// Methods that return the value itself, or an item of it.
const TRANSPARENT: [&str; 8] =
    ["items", "next", "value", "clone", "cloned", "iter", "into_iter", "unwrap_or_default"];

/// Returns all functions of a file, with the positions of parameters that they use as names of
/// members.
pub fn accessors(file: &syn::File, known: &Accessors) -> Accessors {
    let mut found = Functions { known, found: Accessors::default() };
    found.visit_file(file);
    found.found
}

/// Collects the literals outside of tests.
pub fn literals(file: &syn::File, accessors: &Accessors) -> Vec<Literal> {
    let mut constants = Constants(HashMap::new());
    constants.visit_file(file);
    let mut literals = Literals { accessors, constants: constants.0, found: Vec::new() };
    literals.visit_file(file);
    literals.found
}

struct Functions<'a> {
    known: &'a Accessors,
    found: Accessors,
}

impl Functions<'_> {
    fn function(&mut self, signature: &Signature, body: &syn::Block) {
        let parameters = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(typed),
            FnArg::Receiver(_) => None,
        });
        let mut uses = Uses { known: self.known, variables: HashSet::new() };
        uses.visit_block(body);
        let named = parameters.enumerate().filter(|(_, parameter)| match (&*parameter.pat, &*parameter.ty) {
            (Pat::Ident(pattern), Type::Reference(text)) => {
                uses.variables.contains(&pattern.ident.to_string())
                    && matches!(&*text.elem, Type::Path(path) if path.path.is_ident("str"))
            }
            _ => false,
        });
        self.found.0.entry(signature.ident.to_string()).or_default().extend(named.map(|(place, _)| place));
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.function(&function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.function(&function.sig, &function.block);
    }
}

/// The variables that are used as names of members.
struct Uses<'a> {
    known: &'a Accessors,
    variables: HashSet<String>,
}

impl Uses<'_> {
    fn name(&mut self, argument: &Expr) {
        if let Expr::Path(path) = bare(argument)
            && let Some(name) = path.path.get_ident()
        {
            self.variables.insert(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_expr_index(&mut self, index: &'ast syn::ExprIndex) {
        visit::visit_expr_index(self, index);
        self.name(&index.index);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        for argument in name_arguments(&call.method.to_string(), &call.args, self.known, true) {
            self.name(argument);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        visit::visit_expr_call(self, call);
        for argument in name_arguments(&called(call), &call.args, self.known, false) {
            self.name(argument);
        }
    }
}

type Arguments = syn::punctuated::Punctuated<Expr, syn::Token![,]>;

/// Iterates over the arguments that are names of members.
fn name_arguments<'a>(
    function: &str,
    arguments: &'a Arguments,
    known: &Accessors,
    is_method: bool,
) -> impl Iterator<Item = &'a Expr> + use<'a> {
    let own = is_method && METHODS.contains(&function);
    let places = known.0.get(function).cloned().unwrap_or_default();
    let chosen = move |place: &usize| if own { *place == 0 } else { places.contains(place) };
    arguments.iter().enumerate().filter(move |(place, _)| chosen(place)).map(|(_, argument)| argument)
}

/// Returns the last segment of the name of the called function.
fn called(call: &ExprCall) -> String {
    match &*call.func {
        Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

fn bare(expression: &Expr) -> &Expr {
    match expression {
        Expr::Reference(reference) => bare(&reference.expr),
        Expr::Paren(paren) => bare(&paren.expr),
        Expr::Try(tried) => bare(&tried.expr),
        other => other,
    }
}

fn text(expression: &Expr) -> Option<&LitStr> {
    match bare(expression) {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text),
            _ => None,
        },
        Expr::MethodCall(call) if ["into", "to_owned", "to_string"].contains(&&*call.method.to_string()) => {
            text(&call.receiver)
        }
        _ => None,
    }
}

/// The constants that are arrays, with their items.
struct Constants(HashMap<String, Vec<Expr>>);

impl<'ast> Visit<'ast> for Constants {
    fn visit_item_const(&mut self, constant: &'ast syn::ItemConst) {
        if let Expr::Array(array) = bare(&constant.expr) {
            self.0.insert(constant.ident.to_string(), array.elems.iter().cloned().collect());
        }
    }
}

struct Literals<'a> {
    accessors: &'a Accessors,
    constants: HashMap<String, Vec<Expr>>,
    found: Vec<Literal>,
}

impl Literals<'_> {
    fn add(&mut self, line: usize, path: Vec<String>) {
        if !path.is_empty() {
            self.found.push(Literal { line, path });
        }
    }

    /// Returns the names by which an expression leads from another one to its value; visits the
    /// rest.
    fn chain(&mut self, expression: &Expr) -> Vec<String> {
        match bare(expression) {
            Expr::Index(index) if is_place(&index.index) => {
                let mut path = self.chain(&index.expr);
                path.extend(text(&index.index).map(LitStr::value));
                path
            }
            Expr::MethodCall(call) => {
                let method = call.method.to_string();
                if TRANSPARENT.contains(&&*method) && call.args.is_empty() {
                    return self.chain(&call.receiver);
                }
                let first = call.args.first().and_then(text).map(|text| names(&text.value()));
                match first {
                    Some(first) if METHODS.contains(&&*method) => {
                        let mut path = self.chain(&call.receiver);
                        path.extend(first);
                        call.args.iter().skip(1).for_each(|argument| self.visit_expr(argument));
                        path
                    }
                    _ => {
                        self.visit_expr_method_call(call);
                        Vec::new()
                    }
                }
            }
            other => {
                visit::visit_expr(self, other);
                Vec::new()
            }
        }
    }

    fn arguments(&mut self, function: &str, arguments: &Arguments, is_method: bool) {
        let accessors = self.accessors;
        for argument in name_arguments(function, arguments, accessors, is_method) {
            if let Some(text) = text(argument) {
                self.add(text.span().start().line, names(&text.value()));
            }
        }
    }

    /// Visits literals in an array whose items are bound to variables that name members: `for list
    /// in ["a", "b"]`.
    fn bound(&mut self, array: &Expr, pattern: &Pat, body: impl Fn(&mut Uses<'_>)) {
        let Some(items) = self.items(array) else { return };
        let mut uses = Uses { known: self.accessors, variables: HashSet::new() };
        body(&mut uses);
        let variables: Vec<&Pat> = match pattern {
            Pat::Tuple(tuple) => tuple.elems.iter().collect(),
            one => vec![one],
        };
        for (place, variable) in variables.into_iter().enumerate() {
            if !matches!(variable, Pat::Ident(name) if uses.variables.contains(&name.ident.to_string())) {
                continue;
            }
            for item in &items {
                let value = match item {
                    Expr::Tuple(tuple) => tuple.elems.get(place),
                    one => Some(one),
                };
                if let Some(text) = value.and_then(text) {
                    self.add(text.span().start().line, names(&text.value()));
                }
            }
        }
    }

    /// Returns the items of an array, or of a constant of this file.
    fn items(&self, array: &Expr) -> Option<Vec<Expr>> {
        match bare(array) {
            Expr::Array(array) => Some(array.elems.iter().cloned().collect()),
            Expr::MethodCall(call) if call.args.is_empty() => self.items(&call.receiver),
            Expr::Path(path) => self.constants.get(&path.path.get_ident()?.to_string()).cloned(),
            _ => None,
        }
    }

    /// Visits the keys and values of `json!`.
    fn json(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for entry in tokens.split(|token| is_punctuation(token, ',')) {
            let value = match entry {
                [TokenTree::Literal(key), colon, value @ ..] if is_punctuation(colon, ':') => {
                    if let Ok(key) = syn::parse_str::<LitStr>(&key.to_string()) {
                        self.add(entry[0].span().start().line, vec![key.value()]);
                    }
                    value
                }
                value => value,
            };
            match value {
                [TokenTree::Group(group)] => self.json(group.stream()),
                value => {
                    if let Ok(value) = syn::parse2::<Expr>(value.iter().cloned().collect()) {
                        self.visit_expr(&value);
                    }
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Literals<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_expr(&mut self, expression: &'ast Expr) {
        let line = syn::spanned::Spanned::span(expression).start().line;
        let path = self.chain(expression);
        self.add(line, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.arguments(&call.method.to_string(), &call.args, true);
        if let Some(Expr::Closure(closure)) = call.args.first()
            && let [pattern] = closure.inputs.iter().collect::<Vec<_>>()[..]
        {
            self.bound(&call.receiver, pattern, |uses| uses.visit_expr(&closure.body));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        self.arguments(&called(call), &call.args, false);
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_for_loop(&mut self, each: &'ast syn::ExprForLoop) {
        self.bound(&each.expr, &each.pat, |uses| uses.visit_block(&each.body));
        visit::visit_expr_for_loop(self, each);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        if called.path.segments.last().is_some_and(|last| last.ident == "json") {
            self.json(called.tokens.clone());
        } else if let Ok(arguments) = called.parse_body_with(Arguments::parse_terminated) {
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        }
    }

    /// Records a literal that is written like a field name.
    fn visit_lit_str(&mut self, literal: &'ast LitStr) {
        let text = literal.value();
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric())
        };
        if text.split('.').all(is_name) && text.contains(|c: char| c.is_ascii_uppercase()) {
            self.add(literal.span().start().line, names(&text));
        }
    }
}

fn is_punctuation(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(punctuation) if punctuation.as_char() == c)
}

/// Checks for an index of an item, or a name.
fn is_place(index: &Expr) -> bool {
    matches!(bare(index), Expr::Lit(_))
}

/// Splits a dotted path or a JSON pointer into names, without the indexes of items.
fn names(path: &str) -> Vec<String> {
    match path.strip_prefix('/') {
        Some(pointer) => {
            pointer.split('/').filter(|name| name.parse::<usize>().is_err()).map(str::to_owned).collect()
        }
        None if path.contains('/') => vec![path.to_owned()],
        None => path.split('.').map(str::to_owned).collect(),
    }
}
