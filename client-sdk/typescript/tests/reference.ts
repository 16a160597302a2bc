// Makes docs/typescript.md from the package's own types and comments: node build/reference.js >../../docs/typescript.md

import { argv, stdout } from "node:process";
import { fileURLToPath } from "node:url";

import ts from "typescript";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const HEAD = `# Reference of the TypeScript package

Made from the package by \`client-sdk/typescript/tests/reference.ts\`; \`client-sdk/typescript/README.md\` is the introduction. Times without a unit
are a \`Duration\`.
`;
const MODULES = [
  { title: "tenure", file: "src/index.ts" },
  { title: "tenure/compat", file: "src/compat.ts" },
  { title: "tenure/testing", file: "src/testing.ts" },
];
const SHOWN = ts.TypeFormatFlags.NoTruncation | ts.TypeFormatFlags.UseAliasDefinedOutsideCurrentScope | ts.TypeFormatFlags.OmitParameterModifiers;

export function reference(): string {
  const files = MODULES.map(({ file }) => `${ROOT}${file}`);
  const { options } = ts.parseJsonConfigFileContent(ts.readConfigFile(`${ROOT}tsconfig.json`, ts.sys.readFile).config, ts.sys, ROOT);
  const program = ts.createProgram(files, options);
  const checker = program.getTypeChecker();
  const lines = [HEAD];
  for (const { title, file } of MODULES) {
    const module = checker.getSymbolAtLocation(program.getSourceFile(`${ROOT}${file}`) as ts.SourceFile) as ts.Symbol;
    const exported = checker.getExportsOfModule(module).filter(({ name }) => name !== "default");
    const found = exported.map((symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol));
    lines.push(`## ${title}\n`, ...found.sort(byRank).flatMap((symbol) => section(checker, symbol)));
  }
  return `${lines.join("\n").trimEnd()}\n`;
}

/** What one calls comes first, then classes, then types. */
function byRank(one: ts.Symbol, other: ts.Symbol): number {
  const rank = ({ flags }: ts.Symbol): number => (flags & ts.SymbolFlags.Class ? 1 : flags & (ts.SymbolFlags.Interface | ts.SymbolFlags.TypeAlias) ? 2 : 0);
  return rank(one) - rank(other) || (one.name < other.name ? -1 : 1);
}

function section(checker: ts.TypeChecker, symbol: ts.Symbol): string[] {
  const declaration = symbol.declarations?.[0] as ts.Declaration;
  const about = text(checker, symbol);
  if (ts.isTypeAliasDeclaration(declaration)) {
    return [`### type \`${symbol.name}\`\n`, ...(about ? [`${about}\n`] : []), `\`\`\`ts\n${unindented(declaration.type.getText())}\n\`\`\`\n`];
  }
  const isClass = ts.isClassDeclaration(declaration);
  if (!isClass && !ts.isInterfaceDeclaration(declaration)) {
    return [`### \`${signatures(checker, symbol, declaration)[0]}\`\n`, `${about}\n`];
  }
  const bases = declaration.heritageClauses?.flatMap(({ types }) => types.map((base) => base.expression.getText())) ?? [];
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  const own = isClass ? constructors(checker, symbol, declaration) : [];
  const members = type.getProperties().filter((member) => isShown(member, declaration)).flatMap((member) => {
    const words = text(checker, member).replace(/\s+/g, " ");
    return signatures(checker, member, declaration).map((shown) => `- \`${shown}\`${words ? `: ${words}` : ""}`);
  });
  const title = `### ${isClass ? "class" : "interface"} \`${symbol.name}\`${bases.length ? ` (${bases.join(", ")})` : ""}\n`;
  return [title, ...(about ? [`${about}\n`] : []), ...own, ...members, ...(own.length + members.length ? [""] : [])];
}

function constructors(checker: ts.TypeChecker, symbol: ts.Symbol, of: ts.ClassDeclaration): string[] {
  const made = of.members.find(ts.isConstructorDeclaration);
  if (made === undefined || isInternal(made) || checker.getPropertyOfType(checker.getDeclaredTypeOfSymbol(symbol), "stack") !== undefined) return [];
  return [`- \`new ${symbol.name}(${made.parameters.map((one) => one.getText()).join(", ")})\``];
}

function signatures(checker: ts.TypeChecker, symbol: ts.Symbol, at: ts.Node): string[] {
  const type = checker.getTypeOfSymbolAtLocation(symbol, at);
  const calls = type.getCallSignatures();
  const name = symbol.name.startsWith("__@") ? `[Symbol.${symbol.name.slice(3).split("@")[0]}]` : symbol.name;
  if (calls.length > 0) return calls.map((call) => `${name}${checker.signatureToString(call, at, SHOWN)}`);
  const isOptional = (symbol.flags & ts.SymbolFlags.Optional) !== 0;
  const shown = checker.typeToString(isOptional ? checker.getNonNullableType(type) : type, at, SHOWN);
  return [`${name}${isOptional ? "?" : ""}: ${shown}`];
}

/** Those of the package itself; of a base only if that has no section of its own. */
function isShown(member: ts.Symbol, of: ts.Declaration): boolean {
  const declaration = member.declarations?.[0];
  if (declaration === undefined || ts.isPrivateIdentifier(ts.getNameOfDeclaration(declaration) ?? declaration) || !declaration.getSourceFile().fileName.startsWith(`${ROOT}src/`) || isInternal(declaration)) return false;
  if (ts.getCombinedModifierFlags(declaration) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) return false;
  const parent = declaration.parent;
  const isOfBase = parent !== of && (ts.isClassDeclaration(parent) || ts.isInterfaceDeclaration(parent));
  if (member.name === "name" && ts.isClassDeclaration(of) && of.name?.text !== "Hold") return false;
  return !(isOfBase && ["TenureError", "Refused", "Busy"].includes(parent.name?.text ?? ""));
}

function isInternal(declaration: ts.Node): boolean {
  return ts.getJSDocTags(declaration).some(({ tagName }) => tagName.text === "internal");
}

function text(checker: ts.TypeChecker, symbol: ts.Symbol): string {
  const about = words(symbol.getDocumentationComment(checker));
  const throws = symbol.getJsDocTags(checker).filter(({ name }) => name === "throws").map((tag) => `Throws: ${words(tag.text ?? [])}`);
  return [about, ...throws].filter(Boolean).join("\n\n");
}

/** Links as their text, else as the name of what they lead to. */
function words(parts: readonly ts.SymbolDisplayPart[]): string {
  const shown = parts.filter(({ kind }, at) => kind !== "link" && !(kind === "linkName" && parts[at + 1]?.kind === "linkText"));
  return shown.map(({ kind, text }) => (kind === "linkName" ? `\`${text}\`` : text)).join("");
}

function unindented(code: string): string {
  return code.replace(/^\s*\|/, "|");
}

if (argv[1] === fileURLToPath(import.meta.url)) stdout.write(reference());
